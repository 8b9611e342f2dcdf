"""Targets are refitted to what the layers rounded before really hand on, in any stack and on any number of ranks."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from golf.artifact.quant.drift import DAMPING, DRIFT, corrected, drift_correction
from golf.artifact.quant.hessians import rounded_by_gptq
from golf.artifact.quant.low_rank import A
from golf.artifact.quant.policy import dequantize, quantize
from golf.lab.corpora.own_text import OwnDataset
from golf.settings.config import Config
from golf.training.model.build import build_model
from golf.training.ranks import Ranks
from tests.support import compose, on_ranks, refusal, tiny_overrides
from tests.training.loop.test_calibration import batches, collected, trained_weights

COARSE = ["quant.attn.clip_k=3", "quant.mlp.clip_k=3", "quant.embed.clip_k=8", "quant.attn.format=int4"]
LOW_RANK = "low rank"  # the quickest, and its matrices are rounded in the most steps
STACKS = {
    "plain": ["quant=sdclip_gptq", *COARSE],
    "trellis": ["quant=trellis", *COARSE, "model.tie_embeddings=false"],
    "loops": ["quant=sdclip_gptq", *COARSE, "model.num_layers=4", "tech=[recurrence,value_residual,swiglu]"],
    LOW_RANK: ["quant=sdclip_lqer_asym", *COARSE, "quant.lqer.top=4", "quant.lqer.group=16"],
}


def config(tiny: OwnDataset, *more: str) -> Config:
    small = ["quant.calibration.tokens=256", "quant.small_numel=64", "quant.gptq.drift=true", "model.num_layers=3"]
    return compose([*tiny_overrides(tiny), *small, *more])


def inputs_of_matrices(cfg: Config, weights: dict[str, Tensor], ids: list[Tensor]) -> dict[str, np.ndarray]:
    """Everything `[n, c]` that torch's linear function multiplies with a weight, by name, in the order of first use."""
    model = build_model(cfg).eval()
    model.load_state_dict(weights)
    names = {p.data_ptr(): name for name, p in model.named_parameters()}
    found: dict[str, list[np.ndarray]] = {}

    def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if name := names.get(weight.data_ptr()):
            found.setdefault(name, []).append(x.flatten(0, -2).double().numpy())
        return original(x, weight, bias)

    original = nn.functional.linear
    nn.functional.linear = linear  # type: ignore[assignment]
    try:
        with torch.no_grad():
            for batch in ids:
                model.head(model.hidden(batch))
    finally:
        nn.functional.linear = original
    return {name: np.concatenate(parts) for name, parts in found.items()}


def by_definition(
    cfg: Config, weights: dict[str, Tensor], hessians: dict[str, Tensor], ids: list[Tensor]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Targets and Hessians in float64, matrix by matrix: W' for which W'·x̂ is nearest to W·x, damped towards W.

    What comes before a matrix is rounded under the `hessians` and corrections that are to be checked, because one code
    more or less, by a sum in float32, would change all that follows.
    """
    plain = dataclasses.replace(cfg.quant, gptq=dataclasses.replace(cfg.quant.gptq, drift=False))
    trained = inputs_of_matrices(cfg, weights, ids)
    whole = quantize(weights, plain, {name: torch.from_numpy(x.T @ x) for name, x in trained.items()}, cfg.tech)
    now, targets, sums = dict(weights), dict[str, Tensor](), dict[str, Tensor]()

    def round_as_found(name: str) -> None:
        rank = plain.lqer.rank if name + A in whole else 0
        quant = dataclasses.replace(cfg.quant, lqer=dataclasses.replace(plain.lqer, rank=rank))
        now[name] = dequantize(quantize({name: weights[name]}, quant, hessians, cfg.tech))[name]

    later = [n for n in trained if n in rounded_by_gptq(weights, cfg.quant) and n != "tok_emb.weight"]
    for name in weights.keys() - set(later):
        round_as_found(name)
    x = after = np.zeros((0, 0))
    for name in later:
        # Those that share an input, as queries, keys and values do, are rounded together.
        if not np.array_equal(x, trained[name]):
            x, after = trained[name], inputs_of_matrices(cfg, now, ids)[name]
        w = weights[name].double().numpy()
        ridge = np.sqrt(DAMPING * np.square(after).sum(0).mean()) * np.eye(after.shape[1])
        wanted = np.concatenate([x @ w.T, ridge @ w.T])
        targets[name] = torch.from_numpy(np.linalg.lstsq(np.concatenate([after, ridge]), wanted, rcond=None)[0].T)
        sums[name] = torch.from_numpy(after.T @ after)
        round_as_found(name)
    return targets, sums


@pytest.mark.parametrize(
    "stack", [*(pytest.param(s, marks=pytest.mark.slow) for s in STACKS if s != LOW_RANK), LOW_RANK]
)
def test_targets_are_those_of_least_squares(stack: str, tiny: OwnDataset) -> None:
    cfg = config(tiny, *STACKS[stack])
    weights, stream, again = trained_weights(cfg), batches(cfg), batches(cfg)
    hessians = collected(cfg, weights, Ranks(), lambda: next(stream)).hessians
    targets, sums = by_definition(cfg, weights, hessians, [next(again)[0] for _ in range(2)])
    found = corrected(weights, hessians)
    assert {name for name in weights if name + DRIFT in hessians} == targets.keys()
    assert all(torch.equal(found[name], weights[name]) for name in weights.keys() - targets.keys())
    moves = {name: (target - weights[name]).norm() / target.norm() for name, target in targets.items()}
    for name, target in targets.items():
        assert (found[name] - target).norm() <= (1e-3 * moves[name] + 1e-5) * target.norm(), name
        assert (hessians[name] - sums[name]).norm() <= 1e-5 * sums[name].norm(), name
    assert max(moves.values()) > 0.02
    # Rounding takes the targets in place of the weights.
    plain = dataclasses.replace(cfg.quant, gptq=dataclasses.replace(cfg.quant.gptq, drift=False))
    coded = quantize(weights, cfg.quant, hessians, cfg.tech)
    for name, tensor in quantize(found, plain, hessians, cfg.tech).items():
        assert torch.equal(tensor.data, coded[name].data), name


def test_inputs_that_do_not_drift_change_nothing() -> None:
    x = torch.randn(50, 6, generator=torch.Generator().manual_seed(0))
    x[:, 2] = 0
    hessian = x.T @ x
    torch.testing.assert_close(drift_correction(hessian, hessian), torch.eye(6), rtol=0, atol=1e-5)
    assert torch.equal(drift_correction(torch.zeros(3, 3), torch.zeros(3, 3)), torch.eye(3))


def test_it_stops_where_the_next_stage_would_not_end_in_time(tiny: OwnDataset) -> None:
    cfg = config(tiny, *STACKS["plain"])
    weights, stream = trained_weights(cfg), batches(cfg)
    found = collected(cfg, weights, Ranks(), lambda: next(stream), seconds_left=0.0)
    assert not any(name.endswith(DRIFT) for name in found.hessians)
    assert found.uncorrected == found.matrices == len(found.hessians)


def on_rank(rank: int, world_size: int, cfg: Config, weights: dict[str, Tensor]) -> dict[str, Any]:
    stream = batches(cfg, rank)
    return collected(cfg, weights, Ranks(rank, world_size), lambda: next(stream)).hessians


@pytest.mark.slow
def test_two_ranks_correct_as_one_does(tiny: OwnDataset, tmp_path: Path) -> None:
    cfg = config(tiny, *STACKS[LOW_RANK], "data.micro_batches=2")
    weights = trained_weights(cfg)
    first, second = on_ranks(2, tmp_path, on_rank, cfg, weights)

    def both() -> Iterator[tuple[Tensor, Tensor]]:
        yield from (next(batches(cfg, rank)) for rank in (0, 1))

    stream = both()
    alone = collected(cfg, weights, Ranks(), lambda: next(stream)).hessians
    assert all(torch.equal(tensor, second[name]) for name, tensor in first.items())
    for name, tensor in alone.items():
        assert (tensor - first[name]).norm() <= 1e-3 * tensor.norm(), name


def test_what_chooses_among_all_matrices_is_refused(tiny: OwnDataset) -> None:
    assert "quant.gptq.drift corrects" in refusal("quant.gptq.drift=true")
    assert "leave quant.prune.fraction=0" in refusal(
        "quant=sdclip_gptq", "quant.gptq.drift=true", "quant.prune.fraction=0.1"
    )
