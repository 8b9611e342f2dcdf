"""Worth of test-time training, apart from the longer context that it brings along, on finished laptop runs.

`python -m bench.study_ttt RUN… --documents 100` scores the artifact of each run on the first documents of the
validation split in five ways: disjoint rows, windows of a document whose stride is a chunk, the same windows with
low-rank factors trained at two rates, and these with phases of SGD. With whole chunks the windows of the low-rank
factors are those of the second way, target by target, so that their difference is training alone. Differences are
paired by target; the table has means over runs with 95 % intervals by t.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

from bench.study_bytes import interval
from golf.artifact.container import load
from golf.bits import Score, bits_per_byte
from golf.run.folder import RunFolder
from golf.settings.config import Config
from golf.settings.scoring_config import PhasesConfig, TTTConfig
from golf.training.data.dataset import Dataset, open_dataset
from golf.training.ranks import Ranks
from golf.training.scoring.document_queue import list_documents
from golf.training.scoring.scorer import Scorer

CHUNK = 32  # tokens; the window of 256 is a multiple, so that windows with and without training are the same
ROWS, WINDOWS, FACTORS, FASTER, PHASES = (
    "disjoint rows",
    "windows, no training",
    "low-rank factors, rate 1e-4",
    "low-rank factors, rate 1e-3",
    "the same and three phases",
)


def ways(cfg: Config, documents: int) -> dict[str, Config]:
    """Return the configuration of each way to score by its name, the plain ones first."""
    factors = TTTConfig(
        method="lora",
        lr=1e-4,
        chunk_tokens=CHUNK,
        batch_seqs=16,
        lora_rank=8,
        lora_targets=["q", "k", "v", "o", "mlp", "head"],
        lora_alpha=14.4,
        lora_beta1=0.0,
        lora_beta2=0.99,
        lora_weight_decay=0.5,
    )
    faster = dataclasses.replace(factors, lr=1e-3)
    # One queue of small batches, so that there are pauses among so few documents.
    phases = PhasesConfig(count=3, documents=documents // 2, chunk_tokens=2048, batch_seqs=8)
    phased = dataclasses.replace(faster, batch_seqs=8, lora_queue="upstream", lora_phases=phases)
    plain = dataclasses.replace(cfg.eval, documents=True, dtype="fp32", stride=CHUNK, ttt=TTTConfig(method="off"))
    chosen = {
        ROWS: plain,
        WINDOWS: plain,
        FACTORS: dataclasses.replace(plain, ttt=factors),
        FASTER: dataclasses.replace(plain, ttt=faster),
        PHASES: dataclasses.replace(plain, ttt=phased),
    }
    return {name: dataclasses.replace(cfg, eval=how) for name, how in chosen.items()}


def first_documents(dataset: Dataset, documents: int) -> Dataset:
    """Return `dataset` with the first `documents` documents of its validation split."""
    start, targets = list_documents(dataset.validation)[documents - 1]
    end = start + targets
    return dataclasses.replace(
        dataset, validation=dataset.validation[: end + 1], target_bytes=dataset.target_bytes[:end]
    )


def nats_of_run(folder: RunFolder, documents: int) -> Iterator[tuple[str, np.ndarray, Dataset]]:
    """Yield each way's name, the nats of every target `[N]`, and the text, for the artifact in `folder`."""
    cfg = folder.read_config()
    cfg = dataclasses.replace(
        cfg,
        model=dataclasses.replace(cfg.model, attention="sdpa"),
        launch=dataclasses.replace(cfg.launch, nproc=1, device="cpu", compile="off"),
    )
    weights = load(folder.artifact).state_dict()
    dataset = first_documents(open_dataset(cfg), documents)
    for name, chosen in ways(cfg, documents).items():
        scorer = Scorer(chosen, dataset, Ranks(device=torch.device("cpu")))
        nats = np.full(dataset.validation.size - 1, np.nan)
        score: Callable[..., Score] = scorer.test_time_trained
        if name in (ROWS, WINDOWS):
            score = scorer if name == ROWS else scorer.sliding
        start = time.process_time()
        score(weights, observe=nats.__setitem__)
        assert not np.isnan(nats).any()
        print(f"  {name}: {time.process_time() - start:.0f} CPU s", flush=True)
        yield name, nats, dataset


def bpb(nats: np.ndarray, dataset: Dataset) -> float:
    """Return the bits per byte of targets whose nats are `nats` `[N]`."""
    return bits_per_byte(float(nats.mean()), nats.size, int(dataset.target_bytes.sum(dtype=np.int64)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of finished runs")
    parser.add_argument("--documents", type=int, default=100, help="documents to score")
    arguments = parser.parse_args()
    scores: dict[str, list[float]] = {}
    errors: dict[str, list[float]] = {}
    for run in arguments.runs:
        print(run.name, flush=True)
        windows: np.ndarray | None = None
        for name, nats, dataset in nats_of_run(RunFolder(run), arguments.documents):
            windows = nats if name == WINDOWS else windows
            scores.setdefault(name, []).append(bpb(nats, dataset))
            if windows is not None:
                # By document, because the targets of one share its adapted factors.
                bounds = list_documents(dataset.validation)[:, 0]
                sums = np.add.reduceat(nats - windows, bounds)
                scale = math.log(2) * int(dataset.target_bytes.sum(dtype=np.int64))
                errors.setdefault(name, []).append(math.sqrt(sums.size * sums.var(ddof=1)) / scale)
        print(f"  {dataset.validation.size - 1:,} targets in {arguments.documents} documents", flush=True)
    print("\n| way | bpb | against windows without training | error by documents |\n|---|---|---|---|")
    for name, found in scores.items():
        gains = [own - plain for own, plain in zip(found, scores[WINDOWS], strict=True)]
        error = f"{statistics.mean(errors[name]):.5f}" if name in errors else ""
        print(f"| {name} | {statistics.mean(found):.4f} | {interval(gains, 5)} | {error} |")
    print()
    for name in (FACTORS, FASTER, PHASES):
        trios = list(zip(scores[ROWS], scores[WINDOWS], scores[name], strict=True))
        whole = interval([trained - rows for rows, _, trained in trios], 5)
        share = interval([(windows - rows) / (trained - rows) for rows, windows, trained in trios], 2)
        print(f"{name}, against disjoint rows: {whole}; share that is longer context {share}")


if __name__ == "__main__":
    main()
