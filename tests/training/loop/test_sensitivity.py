"""Sensitivity: divergences are those of a model with one matrix rounded, on any stack and any number of ranks."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from golf.artifact.quant.policy import dequantize, quantize
from golf.artifact.quant.sensitivity import STEP, step_factors
from golf.lab.corpora.own_text import OwnDataset
from golf.settings.config import Config
from golf.training.model.build import build_model
from golf.training.ranks import Ranks
from tests.support import compose, golf_main, on_ranks, only_run, tiny_overrides
from tests.training.loop.test_calibration import batches, collected, trained_weights

STACKS = {
    "plain": ["quant=sdclip_gptq"],
    "trellis": ["quant=trellis", "quant.attn.clip_k=4", "model.tie_embeddings=false"],
    "repaired": [
        "quant=sdclip_lqer_asym",
        "quant.lqer.top=4",
        "quant.lqer.group=16",
        "tech=[recurrence,value_residual]",
    ],
}


def config(tiny: OwnDataset, *more: str) -> Config:
    small = ["quant.calibration.tokens=256", "quant.small_numel=64", "quant.step_sensitivity=0.75"]
    return compose([*tiny_overrides(tiny), *small, "model.num_layers=4", *more])


def log_likely(cfg: Config, weights: dict[str, Tensor], ids: Tensor) -> np.ndarray:
    """Log-probabilities `[n, V]` in float64 of the next tokens."""
    model = build_model(cfg).eval()
    model.load_state_dict(weights)
    with torch.no_grad():
        logits = model.softcap(model.head(model.hidden(ids).float())).double().flatten(0, 1).numpy()
    return logits - np.log(np.exp(logits).sum(1, keepdims=True))


@pytest.mark.parametrize(
    "stack", ["plain", *(pytest.param(s, marks=pytest.mark.slow) for s in ("trellis", "repaired"))]
)
def test_divergences_are_those_of_one_rounded_matrix(stack: str, tiny: OwnDataset) -> None:
    cfg = config(tiny, *STACKS[stack])
    weights, stream, again = trained_weights(cfg), batches(cfg), batches(cfg)
    hessians = collected(cfg, weights, Ranks(), lambda: next(stream)).hessians
    ids = torch.cat([next(again)[0] for _ in range(2)])
    trained, found, sizes = log_likely(cfg, weights, ids), dict[str, float](), dict[str, int]()
    plain = dataclasses.replace(cfg.quant, lqer=dataclasses.replace(cfg.quant.lqer, rank=0))
    for name in (n for n in weights if n in hessians):
        own = {name: hessians[name]}
        stored = dequantize(quantize({name: weights[name]}, plain, own, cfg.tech))[name]
        other = log_likely(cfg, weights | {name: stored}, ids)
        found[name], sizes[name] = float((np.exp(trained) * (trained - other)).sum()), weights[name].numel()
    expected = step_factors(found, sizes, 0.75)
    assert expected.keys() == {name for name in hessians if name.endswith(STEP)} and len(expected) > 20
    for name, factor in expected.items():
        assert float(hessians[name]) == pytest.approx(float(factor), rel=1e-3), name
    assert max(expected.values()) > 1.2 and min(expected.values()) < 0.8


def test_steps_stay_where_no_time_is_left(tiny: OwnDataset) -> None:
    cfg = config(tiny, *STACKS["plain"])
    stream = batches(cfg)
    found = collected(cfg, trained_weights(cfg), Ranks(), lambda: next(stream), seconds_left=0.0)
    assert found.matrices == len(found.hessians) and not any(name.endswith(STEP) for name in found.hessians)


def test_steps_stay_where_a_rule_gives_every_matrix_another_clip(tiny: OwnDataset) -> None:
    cfg = config(tiny, *STACKS["plain"], "quant.by_name={*:{format:int6,clip:quantile}}")
    stream = batches(cfg)
    found = collected(cfg, trained_weights(cfg), Ranks(), lambda: next(stream))
    assert found.matrices == len(found.hessians) > 20


def on_rank(rank: int, world_size: int, cfg: Config, weights: dict[str, Tensor]) -> dict[str, Any]:
    stream = batches(cfg, rank)
    return collected(cfg, weights, Ranks(rank, world_size), lambda: next(stream)).hessians


@pytest.mark.slow
def test_two_ranks_measure_as_one_does(tiny: OwnDataset, tmp_path: Path) -> None:
    cfg = config(tiny, *STACKS["plain"], "data.micro_batches=2", "quant.gptq.drift=true")
    weights = trained_weights(cfg)
    first, second = on_ranks(2, tmp_path, on_rank, cfg, weights)

    def both() -> Iterator[tuple[Tensor, Tensor]]:
        yield from (next(batches(cfg, rank)) for rank in (0, 1))

    stream = both()
    alone = collected(cfg, weights, Ranks(), lambda: next(stream)).hessians
    assert all(torch.equal(tensor, second[name]) for name, tensor in first.items())
    for name in (name for name in alone if name.endswith(STEP)):
        assert float(first[name]) == pytest.approx(float(alone[name]), rel=1e-3), name


@pytest.mark.slow
def test_a_run_in_bf16_fills_its_cap_with_them(tiny: OwnDataset, runs: Path) -> None:
    small = ["quant=trellis_sensitive", "quant.calibration.tokens=512", "quant.small_numel=64"]
    more = ["quant.fit=cap", "budget.artifact_bytes=90000", "model.compute_dtype=bf16", "eval.dtype=bf16"]
    done = golf_main(*tiny_overrides(tiny), *small, *more)
    assert done.returncode == 0 and "sensitivity moved no step" not in done.stdout, done.stderr
    assert (only_run(runs) / "artifact.golf").stat().st_size <= 90_000
