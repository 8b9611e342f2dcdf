"""Worth of eight ingredients of the unmerged public runs, one at a time, on one finished laptop run.

`python -m bench.study_ingredients RUN --documents 30` stores the weights of a run with SDClip GPTQ, scores the first
documents of the validation split with low-rank factors trained at test time, and then once more with each ingredient
changed. Differences are paired by document, with a 95 % interval by t over documents. An interval of one run says
nothing about other seeds.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats

from bench.study_softcap import Float32Cap, by_document
from bench.study_ttt import CHUNK, bpb, first_documents
from golf.artifact.container import unpack
from golf.run.folder import RunFolder
from golf.settings.config import Config
from golf.settings.scoring_config import EvalConfig, PhasesConfig, TiltConfig, TTTConfig
from golf.training.data.dataset import Dataset, open_dataset
from golf.training.loop.calibration import calibrate
from golf.training.loop.export import pack_model
from golf.training.loop.quant_gap import quant_of
from golf.training.model.weights import read_weights
from golf.training.ranks import Ranks
from golf.training.scoring.document_queue import list_documents
from golf.training.scoring.scorer import Scorer

BASE, SOFTCAP = "three phases, window 256, chunks of 32", "soft cap in float32 (all in bf16)"
TOKENS = 65_536  # of calibration
STORED = {  # name → preset of `quant` with overrides
    BASE: "sdclip_gptq",
    "quant=trellis": "trellis",
    "low-rank factors in storage, groups of 32": "sdclip_lqer_asym quant.lqer.group=32",
}


def scored_ways(cfg: Config, documents: int) -> dict[str, EvalConfig]:
    """Return how each ingredient of test-time training scores, by its name, the plain way first."""
    phases = PhasesConfig(count=3, documents=documents // 2, chunk_tokens=2048, batch_seqs=8)
    factors = TTTConfig(
        method="lora",
        lr=1e-3,
        chunk_tokens=CHUNK,
        batch_seqs=8,
        lora_targets=["q", "k", "v", "o", "mlp", "head"],
        lora_alpha=14.4,
        lora_beta1=0.0,
        lora_beta2=0.99,
        lora_weight_decay=0.5,
        lora_queue="upstream",
        lora_phases=phases,
    )
    plain = dataclasses.replace(cfg.eval, documents=True, dtype="fp32", seq_len=256, stride=CHUNK, ttt=factors)
    tilt = TiltConfig("ngram", 2.625, "constant", contexts=[15], least_shares=[0.8], least_counts=[1])
    changed: dict[str, dict[str, Any]] = {
        "one phase": {"lora_phases": dataclasses.replace(phases, count=1)},
        "chunks of 16 for short documents": {"lora_chunks": [[256, 16]]},
        "no factors for queries and values": {"lora_targets": ["k", "o", "mlp", "head"]},
    }
    ways = {name: dataclasses.replace(plain, ttt=dataclasses.replace(factors, **ttt)) for name, ttt in changed.items()}
    return {
        BASE: plain,
        **ways,
        "window of 512": dataclasses.replace(plain, seq_len=512),
        "tilt in order of scoring": dataclasses.replace(plain, tilt=tilt),
    }


def nats_of(cfg: Config, artifact: bytes, dataset: Dataset, *, float32_cap: bool = False) -> np.ndarray:
    """Return the nats of every target `[N]` under test-time training."""
    scorer = Scorer(cfg, dataset, Ranks(device=torch.device("cpu")))
    if float32_cap:
        scorer.model.softcap = Float32Cap(scorer.model)  # type: ignore[method-assign]
    nats = np.full(dataset.validation.size - 1, np.nan)
    scorer.test_time_trained(unpack(artifact).state_dict(), observe=nats.__setitem__)
    assert not np.isnan(nats).any()
    return nats


def differences(run: Path, documents: int) -> Iterator[tuple[str, np.ndarray, np.ndarray, Dataset]]:
    """Yield each ingredient's name, the nats `[N]` without and with it, and the text."""
    folder = RunFolder(run)
    cfg = folder.read_config()
    cfg = dataclasses.replace(
        cfg,
        model=dataclasses.replace(cfg.model, attention="sdpa"),
        launch=dataclasses.replace(cfg.launch, nproc=1, device="cpu", compile="off"),
    )
    whole, stored = open_dataset(cfg), read_weights(folder.weights)
    weights = {name: stored[name] for name in Scorer(cfg, whole, Ranks()).model.state_dict()}
    dataset, ways = first_documents(whole, documents), scored_ways(cfg, documents)
    artifacts = {}
    for name, choice in STORED.items():
        quant = quant_of(f"{choice} quant.calibration.tokens={TOKENS}", cfg)
        chosen = dataclasses.replace(cfg, quant=quant)
        artifacts[name] = pack_model(chosen, weights, 0, calibrate(weights, chosen, whole)).artifact
    plain = dataclasses.replace(cfg, eval=ways[BASE])
    base = nats_of(plain, artifacts[BASE], dataset)
    for name, how in list(ways.items())[1:]:
        yield name, base, nats_of(dataclasses.replace(cfg, eval=how), artifacts[BASE], dataset), dataset
    for name in list(STORED)[1:]:
        yield f"{name} ({len(artifacts[name]):,} bytes)", base, nats_of(plain, artifacts[name], dataset), dataset
    narrow = dataclasses.replace(
        plain,
        model=dataclasses.replace(plain.model, compute_dtype="bf16"),
        eval=dataclasses.replace(plain.eval, dtype="bf16"),
    )
    rounded = nats_of(narrow, artifacts[BASE], dataset)
    yield SOFTCAP, rounded, nats_of(narrow, artifacts[BASE], dataset, float32_cap=True), dataset


def least_seen(difference: np.ndarray, dataset: Dataset) -> float:
    """Return the smallest effect in bpb that so many documents show four times in five, at p < 0.05."""
    sums = np.add.reduceat(difference, list_documents(dataset.validation)[:, 0])
    error = math.sqrt(sums.size * sums.var(ddof=1))
    scale = math.log(2) * int(dataset.target_bytes.sum(dtype=np.int64))
    return float(stats.t.ppf(0.975, sums.size - 1) + stats.t.ppf(0.8, sums.size - 1)) * error / scale


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a finished run whose documents are apart")
    parser.add_argument("--documents", type=int, default=30, help="documents to score")
    arguments = parser.parse_args()
    print("| ingredient | bpb | against without it | least that is seen |\n|---|---|---|---|", flush=True)
    for name, without, with_it, dataset in differences(arguments.run, arguments.documents):
        change = with_it - without
        seen = f"{bpb(with_it, dataset):.4f} | {by_document(change, dataset)} | {least_seen(change, dataset):.4f}"
        print(f"| {name} | {seen} |", flush=True)


if __name__ == "__main__":
    main()
