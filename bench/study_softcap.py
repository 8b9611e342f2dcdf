"""Worth of a soft cap in float32 inside test-time training in bf16, on finished laptop runs.

`python -m bench.study_softcap RUN… --documents 40` scores the artifact of each run three times with low-rank factors in
bf16: with the capped logits rounded to bf16, as a script without a compiler has them, with the cap in float32, and with
the head's product in float32, too. The loss is float32 always. Differences are paired by document, with a 95 % interval
by t over documents for each run, and over runs.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from scipy import stats
from torch import Tensor

from bench.study_bytes import interval
from bench.study_ttt import FACTORS, FASTER, bpb, first_documents, ways
from golf.artifact.container import load
from golf.run.folder import RunFolder
from golf.settings.config import Config
from golf.training.data.dataset import Dataset, open_dataset
from golf.training.model.gpt import GPT, capped
from golf.training.ranks import Ranks
from golf.training.scoring.document_queue import list_documents
from golf.training.scoring.scorer import Scorer

ROUNDED, CAP, HEAD = "capped logits in bf16", "cap in float32", "head and cap in float32"


class Float32Cap:
    """The soft cap of a model on float32 logits."""

    def __init__(self, model: GPT):
        self.cap = model.cfg.logit_softcap

    def __call__(self, logits: Tensor) -> Tensor:
        return capped(logits.float(), self.cap)


class Float32Head:
    """The head of a model with float32 products of its bf16 inputs."""

    def __init__(self, model: GPT):
        self.model = model

    def __call__(self, x: Tensor, active: tuple[str, ...] = ()) -> Tensor:
        return F.linear(x.float(), self.model.head_weight(active).float())


def nats_of(way: str, cfg: Config, weights: dict[str, Tensor], dataset: Dataset) -> np.ndarray:
    """Return the nats `[N]` of every target of `dataset`."""
    scorer = Scorer(cfg, dataset, Ranks(device=torch.device("cpu")))
    if way != ROUNDED:
        # Only here: a run has one arithmetic for all of its scores.
        scorer.model.softcap = Float32Cap(scorer.model)  # type: ignore[method-assign]
    if way == HEAD:
        scorer.model.head = Float32Head(scorer.model)  # type: ignore[method-assign]
    nats = np.full(dataset.validation.size - 1, np.nan)
    scorer.test_time_trained(weights, observe=nats.__setitem__)
    assert not np.isnan(nats).any()
    return nats


def prepared(folder: RunFolder) -> Config:
    """Return the configuration of a run for scores on the CPU in bf16."""
    cfg = folder.read_config()
    return dataclasses.replace(
        cfg,
        model=dataclasses.replace(cfg.model, attention="sdpa", compute_dtype="bf16"),
        eval=dataclasses.replace(cfg.eval, dtype="bf16"),
        launch=dataclasses.replace(cfg.launch, nproc=1, device="cpu", compile="off"),
    )


def by_document(difference: np.ndarray, dataset: Dataset) -> str:
    """Return the sum of a difference of nats `[N]` in bpb, with a 95 % interval by t over documents."""
    sums = np.add.reduceat(difference, list_documents(dataset.validation)[:, 0])
    scale = math.log(2) * int(dataset.target_bytes.sum(dtype=np.int64))
    half = stats.t.ppf(0.975, sums.size - 1) * math.sqrt(sums.size * sums.var(ddof=1))
    return f"{sums.sum() / scale:+.6f} ± {half / scale:.6f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of finished runs")
    parser.add_argument("--documents", type=int, default=40, help="documents to score")
    parser.add_argument("--rate", choices=["1e-4", "1e-3"], default="1e-4", help="rate of the low-rank factors")
    arguments = parser.parse_args()
    gains: dict[str, list[float]] = {}
    print("| run | way | bpb | against the first, by document |\n|---|---|---|---|", flush=True)
    for run in arguments.runs:
        folder = RunFolder(run)
        cfg, weights = prepared(folder), load(folder.artifact).state_dict()
        dataset = first_documents(open_dataset(cfg), arguments.documents)
        chosen = ways(cfg, arguments.documents)[FACTORS if arguments.rate == "1e-4" else FASTER]
        chosen.eval.dtype = "bf16"
        rounded: np.ndarray | None = None
        for way in (ROUNDED, CAP, HEAD):
            nats = nats_of(way, chosen, weights, dataset)
            rounded = nats if rounded is None else rounded
            gains.setdefault(way, []).append(bpb(nats, dataset) - bpb(rounded, dataset))
            said = "" if way == ROUNDED else by_document(nats - rounded, dataset)
            print(f"| {run.name} | {way} | {bpb(nats, dataset):.6f} | {said} |", flush=True)
    if len(arguments.runs) > 1:
        print("".join(f"\n{way}, over runs: {interval(gains[way], 6)}" for way in (CAP, HEAD)))


if __name__ == "__main__":
    main()
