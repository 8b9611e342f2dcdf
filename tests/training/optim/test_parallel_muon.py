"""Parallel Muon is plain Muon: to the bit on one rank, to rounding on several, which are real processes here."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from golf.settings.config import OptimConfig
from golf.training.loop.checkpoint import flatten
from golf.training.optim.adam import Adam
from golf.training.optim.groups import ClippedOptimizer, Optimizer
from golf.training.optim.muon import Muon
from golf.training.optim.parallel_muon import ParallelMuon
from golf.training.ranks import ALONE, Ranks
from tests.support import on_ranks

SHAPES = [(48, 16), (16, 48), (24, 24), (32, 16), (24, 24), (16, 48), (24, 24), (32, 16)]
ROWS = {3: [16, 8, 8], 7: [16, 8, 8]}  # fused parameters by index
VECTORS = [(5,), (2, 3)]


def parameters(shapes: Sequence[tuple[int, ...]]) -> list[nn.Parameter]:
    torch.manual_seed(0)
    return [nn.Parameter(torch.randn(shape)) for shape in shapes]


def gradients(like: list[nn.Parameter], step: int, rank: int) -> list[Tensor]:
    """Of lengths that differ between steps and ranks, so that it matters to momentum who clips what."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    length = (1.0, 0.01, 10.0, 0.1, 1.0)[step] * (1 + 3 * rank)
    return [length * torch.randn(p.shape, generator=generator) for p in like]


def muon(form: Any, params: list[nn.Parameter], ranks: Ranks, **settings: Any) -> Muon | ParallelMuon:
    row_counts = {params[i]: rows for i, rows in ROWS.items()}
    return form(params, OptimConfig(matrix_lr=0.02, muon_wd=0.1, **settings), ranks=ranks, row_counts=row_counts)


def optimizer(form: Any, clip_norm: float = 0.0, ranks: Ranks = ALONE, **settings: Any) -> Optimizer:
    vectors = [nn.Parameter(p.detach().to(torch.bfloat16)) for p in parameters(VECTORS[:1])] + parameters(VECTORS[1:])
    parts = muon(form, parameters(SHAPES), ranks, **settings), [Adam(vectors, lr=0.01)]
    return ClippedOptimizer(*parts, clip_norm) if clip_norm else Optimizer(*parts)


def set_mean_gradients(opt: Optimizer, step: int, ranks: list[int]) -> None:
    """Gradients as a backward pass leaves them: of this rank alone, or averaged over all by DDP."""
    opt.zero_grad()
    params = list(opt.parameters())
    for p, *parts in zip(params, *(gradients(params, step, rank) for rank in ranks), strict=True):
        mean = torch.stack(parts).mean(0).to(p.dtype)
        if p.grad is None:
            p.grad = mean
        else:
            p.grad.add_(mean)


def weights(opt: Optimizer) -> list[Tensor]:
    return [p.detach().clone() for p in opt.parameters()]


@pytest.mark.parametrize(
    "settings",
    [
        {"muon_dtype": "fp32"},
        {"muon_dtype": "bf16"},
        {"muon_dtype": "fp32", "muon_row_normalize": True, "muon_coefficients": "polar_express"},
        {"muon_dtype": "bf16", "muon_momentum_dtype": "bf16"},
    ],
)
@pytest.mark.parametrize("clip_norm", [0.0, 3.0])
def test_on_one_rank_it_is_plain_muon_to_the_bit(settings: dict[str, Any], clip_norm: float) -> None:
    plain, parallel = (optimizer(form, clip_norm, **settings) for form in (Muon, ParallelMuon))
    start = weights(plain)
    for step in range(5):
        for opt in (plain, parallel):
            set_mean_gradients(opt, step, [0])
            opt.step(1.0 / (step + 1), 0.9)
    assert all(torch.equal(p, q) for p, q in zip(weights(plain), weights(parallel), strict=True))
    assert not any(torch.equal(p, q) for p, q in zip(weights(plain), start, strict=True))


def train_on_rank(rank: int, world_size: int, clip_norm: float, dtype: str, rows: bool) -> dict[str, list[Tensor]]:
    """Weights after five steps of each form; plain Muon gets the mean gradients that DDP would give it."""
    parallel = optimizer(ParallelMuon, clip_norm, Ranks(rank, world_size), muon_dtype=dtype, muon_row_normalize=rows)
    plain = optimizer(Muon, clip_norm, Ranks(rank, world_size), muon_dtype=dtype, muon_row_normalize=rows)
    own = optimizer(ParallelMuon, clip_norm, Ranks(rank, world_size), muon_dtype=dtype, muon_row_normalize=rows)
    own.own_norm = True  # type: ignore[attr-defined]
    for step in range(5):
        for opt in (parallel, own):
            set_mean_gradients(opt, step, [rank])
        set_mean_gradients(plain, step, list(range(world_size)))
        for opt in (parallel, plain, own):
            opt.step(1.0 / (step + 1), 0.9)
    buffers = flatten(parallel.muon.state_dict()).values()
    assert buffers and all(buffer.dtype == torch.float32 for buffer in buffers)
    return {"parallel": weights(parallel), "plain": weights(plain), "own": weights(own)}


def set_means_of_clipped_gradients(opt: Optimizer, step: int, world_size: int, clip_norm: float) -> None:
    """Gradients that every rank clipped by torch's own function, before anything was averaged."""
    opt.zero_grad()
    params = list(opt.parameters())
    sums = [torch.zeros(p.shape) for p in params]
    for rank in range(world_size):
        copies = [nn.Parameter(p.detach().clone()) for p in params]
        for copy, gradient in zip(copies, gradients(params, step, rank), strict=True):
            copy.grad = gradient.to(copy.dtype)
        torch.nn.utils.clip_grad_norm_(copies, clip_norm)
        for total, copy in zip(sums, copies, strict=True):
            assert copy.grad is not None
            total += copy.grad.float() / world_size
    for p, total in zip(params, sums, strict=True):
        p.grad = total.to(p.dtype)


@pytest.mark.parametrize(
    ("world_size", "clip_norm", "rows"),
    [
        (2, 3.0, True),
        pytest.param(2, 0.0, False, marks=pytest.mark.slow),
        pytest.param(3, 3.0, True, marks=pytest.mark.slow),
        pytest.param(3, 3.0, False, marks=pytest.mark.slow),
    ],
)
def test_several_ranks_train_as_plain_muon_on_mean_gradients(
    world_size: int, clip_norm: float, rows: bool, tmp_path: Path
) -> None:
    ranks = on_ranks(world_size, tmp_path, train_on_rank, clip_norm, "fp32", rows)
    alone = optimizer(Muon, clip_norm, muon_dtype="fp32", muon_row_normalize=rows)
    for step in range(5):
        set_mean_gradients(alone, step, list(range(world_size)))
        alone.step(1.0 / (step + 1), 0.9)
    for found in ranks:
        assert all(torch.equal(p, q) for p, q in zip(found["parallel"], ranks[0]["parallel"], strict=True))
        for p, q, one in zip(found["parallel"], found["plain"], weights(alone), strict=True):
            tolerance = 1e-6 if p.dtype == torch.float32 else 1e-2
            assert (p - q).norm() <= tolerance * q.norm() and (p - one).norm() <= tolerance * one.norm()
    if clip_norm:
        by_definition = optimizer(Muon, muon_dtype="fp32", muon_row_normalize=rows)
        for step in range(5):
            set_means_of_clipped_gradients(by_definition, step, world_size, clip_norm)
            by_definition.step(1.0 / (step + 1), 0.9)
        assert not all(map(torch.equal, ranks[0]["own"], ranks[0]["parallel"]))
        for found in ranks:
            for p, one in zip(found["own"], weights(by_definition), strict=True):
                assert (p - one).norm() <= (1e-6 if p.dtype == torch.float32 else 1e-2) * one.norm()


@pytest.mark.slow
def test_in_bf16_the_ranks_stay_equal_and_near_plain_muon(tmp_path: Path) -> None:
    first, second = on_ranks(2, tmp_path, train_on_rank, 0.0, "bf16", False)
    assert all(torch.equal(p, q) for p, q in zip(first["parallel"], second["parallel"], strict=True))
    found, expected = (torch.cat([w.flatten() for w in first[form][: len(SHAPES)]]) for form in ("parallel", "plain"))
    start = torch.cat([w.flatten() for w in weights(optimizer(Muon))[: len(SHAPES)]])
    assert 0 < (found - expected).norm() < 0.05 * (expected - start).norm()


@pytest.mark.parametrize("form", [Muon, ParallelMuon])
def test_state_survives_saving_and_is_no_alias(form: Any) -> None:
    first, second = optimizer(form), optimizer(form)
    for step in range(2):
        set_mean_gradients(first, step, [0])
        first.step(1.0, 0.9)
    second.load_state_dict(first.state_dict())
    for p, q in zip(first.parameters(), second.parameters(), strict=True):
        q.data.copy_(p.data)
    for opt in (first, second):
        set_mean_gradients(opt, 2, [0])
        opt.step(0.5, 0.9)
    assert all(torch.equal(p, q) for p, q in zip(weights(first), weights(second), strict=True))
