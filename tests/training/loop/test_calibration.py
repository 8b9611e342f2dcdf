"""Hessians are sums over the inputs that a scored model really has, on any rank and with any technique."""

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from golf.artifact.quant.hessians import rounded_by_gptq
from golf.artifact.quant.policy import quantize
from golf.lab.corpora.own_text import OwnDataset
from golf.settings.config import Config, training_seconds
from golf.training.data.batches import make_loader
from golf.training.data.dataset import open_dataset
from golf.training.loop.calibration import Calibration, _own_text, calibrate, collect, text_of
from golf.training.loop.state import build_state
from golf.training.model.build import build_model, build_scored_model
from golf.training.ranks import Ranks
from tests.support import compose, on_ranks, tiny_overrides

STACKS = {
    "plain": [],
    "untied": ["model.tie_embeddings=false"],
    "record": ["tech=[partial_rope,xsa,bigram,smear,ln_scale,value_embed,leaky_relu]", "optim=parallel_muon"],
    "recurrence": ["tech=[recurrence,value_residual,swiglu]"],
    "fused": ["tech=[fused_qkv,skip_gates,fake_quant]"],
}


def config(tiny: OwnDataset, *more: str) -> Config:
    return compose([*tiny_overrides(tiny), "quant=sdclip_gptq", "quant.calibration.tokens=256", *more])


def trained_weights(cfg: Config) -> dict[str, Tensor]:
    """Not trained, but with an output: the projections of a fresh model are zero."""
    torch.manual_seed(0)
    state = build_model(cfg).state_dict()
    return {name: 0.3 * torch.randn_like(t) if t.ndim == 2 else t for name, t in state.items()}


def collected(cfg: Config, weights: dict[str, Tensor], *given: Any, **options: Any) -> Calibration:
    model = build_scored_model(cfg, torch.device("cpu"))
    return collect(cfg, model, weights, *given, **options)


def batches(cfg: Config, rank: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(rank)
    while True:
        ids = torch.randint(cfg.model.vocab_size, (4, 32), generator=generator)
        yield ids, ids


def by_definition(cfg: Config, weights: dict[str, Tensor], ids: list[Tensor]) -> dict[str, Tensor]:
    """Σ x xᵀ of everything that torch's linear function multiplies with a weight of the model."""
    model = build_model(cfg).eval()
    model.load_state_dict(weights)
    names = {p.data_ptr(): name for name, p in model.named_parameters()}
    found: dict[str, Tensor] = {}

    def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if name := names.get(weight.data_ptr()):
            flat = x.detach().flatten(0, -2).double()
            found[name] = found.get(name, 0) + flat.T @ flat
        return original(x, weight, bias)

    original = nn.functional.linear
    nn.functional.linear = linear  # type: ignore[assignment]
    try:
        with torch.no_grad():
            for batch in ids:
                model.head(model.hidden(batch))
    finally:
        nn.functional.linear = original
    return found


@pytest.mark.parametrize("stack", STACKS)
def test_hessians_are_those_of_the_inputs_in_any_stack(stack: str, tiny: OwnDataset) -> None:
    cfg = config(tiny, *STACKS[stack])
    weights, stream = trained_weights(cfg), batches(cfg)
    found = collected(cfg, weights, Ranks(), lambda: next(stream))
    assert found.tokens == 256
    again = batches(cfg)
    expected = by_definition(cfg, weights, [next(again)[0] for _ in range(2)])
    wanted = rounded_by_gptq(weights, cfg.quant)
    assert "tok_emb.weight" in wanted and {"blocks.0.attn.proj.weight", "blocks.3.mlp.proj.weight"} <= wanted
    tables = {name for name in wanted if "embed" in name} | ({"tok_emb.weight"} if stack == "untied" else set())
    assert set(found.hessians) == wanted - tables
    for name, hessian in found.hessians.items():
        exact = expected[name] if name in expected else expected["lm_head.weight"]
        assert (hessian - exact).norm() <= 1e-5 * exact.norm(), name
    quantize(weights, cfg.quant, found.hessians)


def on_rank(rank: int, world_size: int, cfg: Config, weights: dict[str, Tensor]) -> dict[str, Any]:
    stream = batches(cfg, rank)
    found = collected(cfg, weights, Ranks(rank, world_size), lambda: next(stream))
    own = collected(with_own_text(cfg), weights, Ranks(rank, world_size))
    return {"hessians": found.hessians, "tokens": found.tokens, "own": own.hessians}


def with_own_text(cfg: Config) -> Config:
    calibration = dataclasses.replace(cfg.quant.calibration, source="self_generated", tokens=100)
    score = dataclasses.replace(cfg.eval, seq_len=8)
    return dataclasses.replace(cfg, quant=dataclasses.replace(cfg.quant, calibration=calibration), eval=score)


@pytest.mark.slow
def test_two_ranks_agree_on_the_sum_over_both(tiny: OwnDataset, tmp_path: Path) -> None:
    cfg = config(tiny, "data.micro_batches=2")
    weights = trained_weights(cfg)
    first, second = on_ranks(2, tmp_path, on_rank, cfg, weights)
    expected = by_definition(cfg, weights, [next(batches(cfg, rank))[0] for rank in (0, 1)])
    assert first["tokens"] == second["tokens"] == 256
    for name, hessian in first["hessians"].items():
        assert torch.equal(hessian, second["hessians"][name])
        exact = expected[name]
        assert (hessian - exact).norm() <= 1e-5 * exact.norm()
    assert all(torch.equal(h, second["own"][name]) for name, h in first["own"].items())


def test_own_text_is_the_same_again_and_of_the_asked_length(tiny: OwnDataset) -> None:
    cfg = with_own_text(config(tiny))
    weights = trained_weights(cfg)
    one, two = collected(cfg, weights, Ranks()), calibrate(weights, cfg)
    assert one.tokens == 128  # two rounds of eight samples of eight tokens
    assert all(torch.equal(h, two[name]) for name, h in one.hessians.items())


def test_each_rank_writes_a_text_of_its_own(tiny: OwnDataset) -> None:
    cfg = with_own_text(config(tiny))
    model = build_scored_model(cfg, torch.device("cpu"))
    model.load_state_dict(trained_weights(cfg))
    texts = [next(_own_text(cfg, model, Ranks(rank, 2))) for rank in (0, 1)]
    assert not torch.equal(*texts)


def test_it_stops_where_the_next_batch_would_not_end_in_time(tiny: OwnDataset) -> None:
    cfg = config(tiny, "quant.calibration.tokens=1000000")
    stream = batches(cfg)
    assert collected(cfg, trained_weights(cfg), Ranks(), lambda: next(stream), seconds_left=0.0).tokens == 128


def test_its_model_is_built_before_the_clock_and_as_text_asks(tiny: OwnDataset) -> None:
    packed = ["data.loader=packed", "model.within_documents=true", "eval.documents=true"]
    state = build_state(config(tiny, *packed, "quant.calibration.text=windows"), Ranks())
    calibrated = state.calibration_model
    assert state.model.separators and calibrated is not None and not calibrated.separators
    assert build_state(compose(tiny_overrides(tiny)), Ranks()).calibration_model is None


def test_windows_are_shuffled_and_seen_whole(tiny: OwnDataset) -> None:
    """The public scripts calibrate on shuffled windows of any documents, however their training packs its rows."""
    packed = ["data.loader=packed", "model.within_documents=true", "eval.documents=true"]
    cfg = config(tiny, *packed, "quant.calibration.text=windows")
    weights, dataset = trained_weights(cfg), open_dataset(cfg)
    loader = make_loader(text_of(cfg), dataset)
    plain = config(tiny, "data.loader=shuffled")
    same = make_loader(plain, dataset)
    ids = [loader.next_batch()[0] for _ in range(2)]
    assert all(torch.equal(batch, same.next_batch()[0]) for batch in ids)
    found, expected = calibrate(weights, cfg, dataset), by_definition(plain, weights, ids)
    for name, hessian in found.items():
        assert (hessian - expected[name]).norm() <= 1e-5 * expected[name].norm(), name
    other = calibrate(weights, config(tiny, *packed), dataset)
    assert not torch.allclose(other["tok_emb.weight"], found["tok_emb.weight"])


def test_the_reserve_comes_off_the_training_clock(tiny: OwnDataset) -> None:
    cfg = config(tiny, "budget.train_seconds=100", "quant.calibration.reserve_seconds=4")
    assert training_seconds(cfg) == 96
    assert training_seconds(config(tiny, "budget.train_seconds=100", "quant.calibration.source=self_generated")) == 100
    assert training_seconds(config(tiny, "budget.train_seconds=100", "quant=int8")) == 100
    cfg.budget.train_seconds = 4.0  # as a script may be told; 0 would be no clock
    assert training_seconds(cfg) < 0
    assert training_seconds(config(tiny)) == 0 and math.isfinite(cfg.quant.calibration.reserve_seconds)
