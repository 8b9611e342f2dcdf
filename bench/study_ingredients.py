"""Worth of eight ingredients of the unmerged public runs, one at a time, on one finished laptop run.

`python -m bench.study_ingredients RUN --documents 30` stores the weights of a run with SDClip GPTQ, scores the first
documents of the validation split with low-rank factors trained at test time, and then once more with each ingredient
changed. Differences are paired by document, with a 95 % interval by t over documents. An interval of one run says
nothing about other seeds.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.study_softcap import CAP, ROUNDED, by_document, nats_of
from bench.study_ttt import PHASES, bpb, first_documents, ways
from golf.artifact.container import unpack
from golf.run.folder import RunFolder
from golf.settings.config import Config
from golf.settings.scoring_config import EvalConfig, TiltConfig
from golf.training.data.dataset import Dataset, open_dataset
from golf.training.loop.calibration import calibrate
from golf.training.loop.export import pack_model, round_model
from golf.training.loop.quant_gap import stored_config
from golf.training.model.weights import read_weights
from golf.training.ranks import Ranks
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
    plain = dataclasses.replace(ways(cfg, documents)[PHASES].eval, seq_len=256)
    factors = plain.ttt
    tilt = TiltConfig("ngram", 2.625, "constant", contexts=[15], least_shares=[0.8], least_counts=[1])
    changed: dict[str, dict[str, Any]] = {
        "one phase": {"lora_phases": dataclasses.replace(factors.lora_phases, count=1)},
        "chunks of 16 for short documents": {"lora_chunks": [[256, 16]]},
        "no factors for queries and values": {"lora_targets": ["k", "o", "mlp", "head"]},
    }
    return {
        BASE: plain,
        **{name: dataclasses.replace(plain, ttt=dataclasses.replace(factors, **ttt)) for name, ttt in changed.items()},
        "window of 512": dataclasses.replace(plain, seq_len=512),
        "tilt in order of scoring": dataclasses.replace(plain, tilt=tilt),
    }


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
    dataset, scored = first_documents(whole, documents), scored_ways(cfg, documents)
    sizes, restored = {}, {}
    for name, choice in STORED.items():
        chosen = stored_config(f"{choice} quant.calibration.tokens={TOKENS}", cfg)
        coded = round_model(chosen, weights, 0, calibrate(weights, chosen, whole))
        artifact = pack_model(chosen, weights, coded).artifact
        sizes[name], restored[name] = len(artifact), unpack(artifact).state_dict()
    plain = dataclasses.replace(cfg, eval=scored[BASE])
    base = nats_of(ROUNDED, plain, restored[BASE], dataset)
    for name, how in list(scored.items())[1:]:
        yield name, base, nats_of(ROUNDED, dataclasses.replace(cfg, eval=how), restored[BASE], dataset), dataset
    for name in list(STORED)[1:]:
        yield f"{name} ({sizes[name]:,} bytes)", base, nats_of(ROUNDED, plain, restored[name], dataset), dataset
    narrow = dataclasses.replace(
        plain,
        model=dataclasses.replace(plain.model, compute_dtype="bf16"),
        eval=dataclasses.replace(plain.eval, dtype="bf16"),
    )
    rounded = nats_of(ROUNDED, narrow, restored[BASE], dataset)
    yield SOFTCAP, rounded, nats_of(CAP, narrow, restored[BASE], dataset), dataset


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a finished run whose documents are apart")
    parser.add_argument("--documents", type=int, default=30, help="documents to score")
    arguments = parser.parse_args()
    print("| ingredient | bpb | against without it |\n|---|---|---|", flush=True)
    for name, without, with_it, dataset in differences(arguments.run, arguments.documents):
        print(f"| {name} | {bpb(with_it, dataset):.4f} | {by_document(with_it - without, dataset)} |", flush=True)


if __name__ == "__main__":
    main()
