"""Predicted bytes: priors, excess bits, sizes of weights, and pruning to the cap."""

import dataclasses
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from golf.artifact.container import pack
from golf.artifact.quant.policy import quantize
from golf.artifact.quant.pruning import MARGIN_BYTES
from golf.lab.plan.artifact_size import has_floor
from golf.lab.plan.excess_bits import (
    PRIORS,
    UNKNOWN,
    Features,
    Prior,
    one_step_excess,
    prior_of,
    rare_rows_excess,
    rounding_excess,
)
from golf.lab.plan.plan import make_plan
from golf.lab.plan.weight_size import WALK, expected_size, path_length, walk_length
from golf.training.loop.schedule import lr_multiplier
from golf.training.model.build import build_model
from tests.support import compose


@given(path=st.floats(0.1, 100.0))
def test_a_prior_is_linear_in_the_logarithm_of_the_path(path: float) -> None:
    excess = Prior(-0.6, path=0.1, sd=0.03, noise=0.04).expected(Features(path, 8192, 112, 112))
    assert excess.bits == pytest.approx(-0.6 + 0.1 * math.log(path / 3)) and excess.sd == pytest.approx(0.05)


@pytest.mark.parametrize(
    "setting, rule",
    [("quant.mlp.clip=std", "std"), ("quant.mlp.clip=quantile", "max"), ("quant.mlp.format=int5", "floor")],
)
def test_priors_are_chosen_by_scale_rule(setting: str, rule: str) -> None:
    floor = "one_over_qmax" if rule == "floor" else "eps"
    cfg = compose(["quant.codec=zlib", setting, f"quant.mlp.scale_floor={floor}"])
    shipped = PRIORS.get((rule, "bytes", "fc"), UNKNOWN[rule])
    assert prior_of("blocks.mlp.fc.weight", cfg.quant.mlp, cfg) == shipped
    assert has_floor(cfg.quant)  # of the other classes


def test_coarser_steps_cost_more_than_a_simulation_says_where_errors_are_passed_on() -> None:
    cfg = compose(["quant=sdclip_gptq"])
    mlp, embed = ("blocks.mlp.fc.weight", cfg.quant.mlp), ("tok_emb.weight", cfg.quant.embed)
    cases = [("gptq", 0.10, mlp), ("trellis", 0.055, mlp), ("nearest", 0.0, mlp), ("trellis", 0.12, embed)]
    for rounding, slope, (role, stored) in cases:
        how = dataclasses.replace(stored, rounding=rounding)
        coarse = dataclasses.replace(how, clip_k=2 * how.clip_k)
        normal, coarser = (rounding_excess(role, h, cfg.quant, 64) for h in (how, coarse))
        assert coarser.bits - normal.bits == pytest.approx(slope * math.log(2)) and coarser.sd >= normal.sd


@given(pieces=st.integers(256, 16_384), seen=st.floats(0.01, 1e3))
def test_one_step_saves_the_less_the_more_a_step_sees_of_each_piece(pieces: int, seen: float) -> None:
    cfg = compose(["quant=trellis"])
    cfg = dataclasses.replace(cfg, model=dataclasses.replace(cfg.model, vocab_size=pieces))
    few, more = (one_step_excess("tok_emb.weight", cfg.quant.embed, cfg, n * pieces * seen) for n in (1, 1.5))
    assert -0.27 <= few.bits <= more.bits <= 0 and few.sd == more.sd > 0
    assert (few.bits == -0.27) == (seen <= 2) and (few.bits == 0) == (seen >= 16)
    assert one_step_excess("blocks.mlp.fc.weight", cfg.quant.mlp, cfg, pieces * seen) == (0, 0)
    assert one_step_excess("tok_emb.weight", compose(["quant=sdclip_gptq"]).quant.embed, cfg, pieces * seen) == (0, 0)


@given(pieces=st.integers(256, 16_384), tokens=st.floats(1e4, 1e10))
def test_pieces_that_are_rarely_seen_shorten_the_codes_of_an_embedding(pieces: int, tokens: float) -> None:
    cfg = compose(["quant=int8"])
    cfg = dataclasses.replace(cfg, model=dataclasses.replace(cfg.model, vocab_size=pieces))
    rare = rare_rows_excess("tok_emb.weight", cfg.quant.embed, cfg, tokens)
    assert -0.7 <= rare.bits <= 0 and rare.sd == pytest.approx(-rare.bits / 2)
    assert rare.bits == 0 or tokens < 100 * pieces
    assert rare.bits < 0 or tokens > 99 * pieces
    assert rare.bits == -0.7 or tokens > 74 * pieces
    assert rare_rows_excess("blocks.mlp.fc.weight", cfg.quant.mlp, cfg, tokens).bits == 0


@pytest.mark.parametrize("cap, ends", [(1_000_000, (0, 0)), (378_000, (0.01, 0.99)), (100_000, (1, 1))])
def test_pruning_to_fit_ends_at_the_cap_if_it_can(cap: int, ends: tuple[float, float]) -> None:
    overrides = ["scale=laptop", "model=4l", "quant=int6_mixed", "quant.codec=zlib", "quant.codec_level=9"]
    overrides += ["quant.scale_floor=eps", "schedule.iterations=60", "budget.train_seconds=0"]
    overrides += ["rules.code_bytes=estimate", "scale.rate_ratio=1", "scale.warmdown_ratio=1"]
    overrides += ["scale.step_ratio=0.03", "data.train_batch_tokens=8192", "data.micro_batches=4"]
    free = make_plan(compose(overrides), [])
    plan = make_plan(
        compose([*overrides, "quant.prune.to_fit=true", f"budget.artifact_bytes={cap + free.code_bytes}"]), []
    )
    assert plan.pruned is not None and ends[0] <= plan.pruned.expected <= ends[1]
    if cap == 1_000_000:
        assert plan.artifact.bytes == free.artifact.bytes
    if cap == 378_000:
        target = plan.cap_bytes - plan.code_bytes - MARGIN_BYTES
        assert plan.artifact.bytes.expected == target < free.artifact.bytes.expected
    if cap == 100_000:
        assert cap < plan.artifact.bytes.expected < free.artifact.bytes.expected


def test_far_from_what_was_measured_the_size_is_less_certain() -> None:
    near, far = (expected_size("blocks.attn.c_q.weight", 64, path, frozenset()) for path in (1.5, 500.0))
    assert near.log_sd < far.log_sd and near.rms < far.rms


@pytest.mark.parametrize("decay", [0.0, 0.04])
def test_a_long_schedule_is_summed_as_the_steps_themselves(decay: float) -> None:
    cfg = compose(["scale=record", "budget=unlimited", f"optim.muon_wd={decay}"])
    steps, exact, squares = 9000, 0.0, 0.0
    cfg.schedule.iterations = steps
    for step in range(steps):
        stride = cfg.optim.matrix_lr * lr_multiplier(cfg, step, 0.0)
        exact = exact * (1 - decay * stride) + stride
        squares = squares * (1 - decay * stride) ** 2 + stride**2
    assert path_length(cfg, "blocks.attn.proj.weight", steps) == pytest.approx(exact, rel=2e-3)
    walk = (WALK * squares / (1 - cfg.optim.muon_momentum)) ** 0.5
    assert walk_length(cfg, "blocks.attn.proj.weight", steps) == pytest.approx(walk, rel=2e-3)
    assert walk_length(cfg, "tok_emb.weight", steps) == math.inf
    assert path_length(cfg, "blocks.attn.proj.weight", 10_000_000) > exact / 2  # and this returns at once


def test_scales_that_a_tuning_changed_are_planned() -> None:
    """Against files whose scales were moved by a hundredth each, as tunings do, where rows had one scale together."""
    rounding = [
        f"quant.{kind}.{of}" for kind in ("embed", "attn", "mlp", "other") for of in ("rounding=nearest", "columns=0")
    ]
    overrides = ["scale=laptop", "quant=trellis", *rounding, "model.num_layers=2", "model.compute_dtype=fp32"]
    cfg = compose(overrides)
    weights = build_model(cfg).scored_weights()
    generator = torch.Generator().manual_seed(1)
    weights = {name: torch.randn(w.shape, generator=generator) / 20 for name, w in weights.items()}
    coded = quantize(weights, cfg.quant, None, cfg.tech)
    moved = {}
    for name, tensor in coded.items():
        if tensor.scale is not None and tensor.scale.numel() > 1:
            noise = 0.01 * torch.randn(tensor.scale.shape, generator=generator)
            tensor = dataclasses.replace(tensor, scale=(tensor.scale * noise.exp()).to(tensor.scale.dtype))
        moved[name] = tensor
    before, after = (len(pack(tensors, cfg.model, cfg.quant, cfg.tech)) for tensors in (coded, moved))
    plain, tuned = (make_plan(compose([*overrides, *m]), []).artifact for m in ([], ["quant.tune.steps=100"]))
    assert tuned.bytes.expected - plain.bytes.expected == pytest.approx(after - before, rel=0.2)
