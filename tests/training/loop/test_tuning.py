"""Floats are tuned in the dtype that is stored, by gradients of the loss that is named, on any number of ranks."""

import dataclasses
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from golf.artifact.container import pack, unpack
from golf.artifact.quant.fitting import tuned_scale_bytes
from golf.artifact.quant.policy import dequantize, quantize
from golf.lab.corpora.own_text import OwnDataset
from golf.run.result import OVER_TIME, Result, read_result
from golf.settings.config import Config, training_seconds
from golf.training.loop import tuning
from golf.training.loop.budget import budget_state
from golf.training.loop.calibration import calibrate
from golf.training.loop.tuning import StoredFloats, tune_floats
from golf.training.ranks import Ranks
from tests.support import compose, golf_main, on_ranks, only_run, refusal, tiny_overrides
from tests.training.loop.test_calibration import trained_weights

COARSE = ["quant.attn.clip_k=4", "quant.mlp.clip_k=4", "quant.small_numel=64", "model.num_layers=2"]
FORMS = {
    "trellis": ["quant=trellis", *COARSE],
    "low rank": ["quant=sdclip_lqer_asym", *COARSE, "quant.lqer.group=16", "quant.mlp.rotation=hadamard"],
    "groups": ["quant=int6_mixed", *COARSE, "quant.mlp.group_size=16", "quant.control_format=fp16"],
    "bf16": ["quant=sdclip_gptq", *COARSE, "model.compute_dtype=bf16", "eval.dtype=bf16"],
}


def config(tiny: OwnDataset, *more: str) -> Config:
    small = ["quant.calibration.tokens=256", "quant.tune.steps=6", "quant.tune.batch_tokens=128"]
    return compose([*tiny_overrides(tiny), *small, *more])


def rounded(cfg: Config) -> tuple[dict[str, Tensor], dict[str, Any]]:
    weights = trained_weights(cfg)
    hessians = calibrate(weights, cfg) if "gptq" in cfg.quant.name or cfg.quant.name != "int6_mixed" else None
    return weights, quantize(weights, cfg.quant, hessians, cfg.tech)


def batches(cfg: Config, ranks: list[int]) -> Iterator[tuple[Tensor, Tensor]]:
    """The micro-batches of `ranks` in turn, each from a stream of its own."""
    generators = [torch.Generator().manual_seed(rank) for rank in ranks]
    for generator in itertools.cycle(generators):
        ids = torch.randint(cfg.model.vocab_size, (4, 33), generator=generator)
        yield ids[:, :-1], ids[:, 1:]


@pytest.mark.parametrize("form", FORMS)
def test_the_file_decodes_to_exactly_the_tuned_values(form: str, tiny: OwnDataset) -> None:
    cfg = config(tiny, *FORMS[form])
    _, coded = rounded(cfg)
    floats = StoredFloats(coded, cfg.quant, torch.device("cpu"))
    before = floats.decoded()
    assert all(torch.equal(tensor, before[name]) for name, tensor in dequantize(coded).items())
    with torch.no_grad():
        for value in floats.changes.values():
            value += 0.01 * torch.randn(value.shape, generator=torch.Generator().manual_seed(value.numel()))
    stored = floats.stored()
    restored = unpack(pack(stored, cfg.model, cfg.quant, cfg.tech)).state_dict()
    tuned = floats.decoded()
    assert list(tuned) == list(before) and any(not torch.equal(tuned[name], before[name]) for name in tuned)
    for name, tensor in restored.items():
        assert torch.equal(tensor, tuned[name]), name
    for name, found in stored.items():
        assert found.data.dtype == coded[name].data.dtype
        if name in floats.grids or name not in floats.changes:
            assert torch.equal(found.data, coded[name].data)


@pytest.mark.parametrize("loss", ["kl", "loss"])
def test_gradients_are_those_of_the_definition(loss: str, tiny: OwnDataset) -> None:
    """Through the values themselves in float64, without a model that takes them over."""
    cfg = config(tiny, *FORMS["low rank"], f"quant.tune.loss={loss}")
    weights, coded = rounded(cfg)
    floats = StoredFloats(coded, cfg.quant, torch.device("cpu"))
    losses = tuning.Losses(cfg, weights, Ranks(), loss)
    rows = [next(batches(cfg, [seed])) for seed in range(cfg.data.micro_batches)]
    losses.backward(floats, rows)
    found = {name: value.grad for name, value in floats.changes.items()}
    for value in floats.changes.values():
        value.grad = None
    model = losses.stored.double()
    values = {name: value.double() for name, value in floats.decoded().items()}

    def logits(state: dict[str, Tensor], ids: Tensor) -> Tensor:
        class Logits(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.model = model

            def forward(self, ids: Tensor) -> Tensor:
                return self.model.softcap(self.model.head(self.model.hidden(ids)))

        named = {f"model.{name}": tensor for name, tensor in state.items()}
        return torch.func.functional_call(Logits(), named, (ids,))

    total = torch.zeros((), dtype=torch.float64)
    for ids, targets in rows:
        likely = logits(values, ids).log_softmax(-1)
        if loss == "kl":
            wanted = logits({n: w.double() for n, w in weights.items()}, ids).log_softmax(-1)
            total = total + (wanted.exp() * (wanted - likely)).sum(-1).mean() / len(rows)
        else:
            total = total + F.nll_loss(likely.flatten(0, 1), targets.flatten()) / len(rows)
    total.backward()
    for name, value in floats.changes.items():
        gradient = found[name]
        assert gradient is not None
        if value.grad is None:
            assert not gradient.any(), name
        else:
            assert torch.allclose(gradient, value.grad, rtol=2e-3, atol=1e-6), name
    assert sum(gradient is not None and bool(gradient.abs().max() > 1e-4) for gradient in found.values()) > 5


def test_tuning_lowers_the_loss_on_text_that_it_does_not_train_on(tiny: OwnDataset) -> None:
    cfg = config(tiny, *FORMS["trellis"], "quant.tune.steps=20")
    weights, coded = rounded(cfg)
    stream = batches(cfg, [0, 1, 2, 3])
    found = tune_floats(cfg, coded, weights, Ranks(), lambda: next(stream))
    assert found.steps == 20 and found.after < 0.995 * found.before
    fresh = batches(cfg, [7])
    rows = [[next(fresh)] for _ in range(8)]
    losses = tuning.Losses(cfg, weights, Ranks())
    before, after = (
        losses.mean(StoredFloats(tensors, cfg.quant, torch.device("cpu")), rows) for tensors in (coded, found.coded)
    )
    assert after < before


def test_what_does_not_help_is_thrown_away(tiny: OwnDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "SCALE_RATE", 10.0)
    monkeypatch.setattr(tuning, "CHECK_EVERY", 1)
    cfg = config(tiny, *FORMS["trellis"], "quant.tune.steps=20")
    weights, coded = rounded(cfg)
    stream = batches(cfg, [0])
    found = tune_floats(cfg, coded, weights, Ranks(), lambda: next(stream))
    assert found.steps == tuning.PATIENCE and found.coded is coded and found.after == found.before


def test_no_step_is_begun_without_time(tiny: OwnDataset) -> None:
    cfg = config(tiny, *FORMS["trellis"])
    weights, coded = rounded(cfg)
    stream = batches(cfg, [0])
    found = tune_floats(cfg, coded, weights, Ranks(), lambda: next(stream), seconds_left=0.0)
    assert found.steps == 0 and found.coded is coded


def on_rank(rank: int, world_size: int, cfg: Config, weights: dict[str, Tensor], coded: dict[str, Any]) -> Any:
    cfg = dataclasses.replace(cfg, launch=dataclasses.replace(cfg.launch, nproc=world_size))
    stream, ranks = batches(cfg, [rank]), Ranks(rank, world_size)
    coded = ranks.of_first(coded if rank == 0 else {})
    found = tune_floats(cfg, coded, weights, ranks, lambda: next(stream))
    return {"before": found.before, "after": found.after, "values": dequantize(found.coded)}


@pytest.mark.slow
def test_two_ranks_tune_as_one_does(tiny: OwnDataset, tmp_path: Path) -> None:
    cfg = config(tiny, *FORMS["low rank"], "data.micro_batches=2", "quant.tune.steps=10")
    weights, coded = rounded(cfg)
    first, second = on_ranks(2, tmp_path, on_rank, cfg, weights, coded)
    stream = batches(cfg, [0, 1])
    alone = tune_floats(cfg, coded, weights, Ranks(), lambda: next(stream))
    assert first["before"] == second["before"] == pytest.approx(alone.before, rel=1e-5)
    assert first["after"] == second["after"] == pytest.approx(alone.after, rel=1e-3)
    assert alone.after < alone.before
    for name, tensor in dequantize(alone.coded).items():
        assert torch.equal(first["values"][name], second["values"][name])
        torch.testing.assert_close(first["values"][name], tensor, rtol=1e-2, atol=1e-3)


def test_rounding_and_tuning_count_as_training(tiny: OwnDataset) -> None:
    cfg = config(tiny, "budget.train_seconds=100", "quant.tune.reserve_seconds=20")
    assert training_seconds(cfg) == 80
    cfg.quant.tune.steps = 0
    assert training_seconds(cfg) == 100
    result = Result(
        name="", variant_id="", seed=1, train_seconds=79.0, artifact_bytes=1, total_bytes=1, eval_seconds=1.0
    )
    assert budget_state(cfg, result)[0] == "ok"
    result.tune_seconds = 30.0
    assert budget_state(cfg, result) == (
        OVER_TIME,
        "training with calibration and tuning took 9.0 s more than its 100 s",
    )


def test_a_byte_is_left_free_for_each_row(tiny: OwnDataset) -> None:
    cfg = config(tiny, "quant=trellis", "quant.small_numel=10")
    weights = {"blocks.0.mlp.fc.weight": torch.zeros(8, 4), "blocks.0.mlp_scale": torch.zeros(20)}
    assert tuned_scale_bytes(weights, cfg.quant, cfg.tech) == 8


def test_bad_combinations_are_refused() -> None:
    assert "set one of them" in refusal("quant=sdclip_gptq", "quant.tune.steps=1", "quant.prune.to_fit=true")
    assert "set quant.calibration.source=train" in refusal(
        "quant=sdclip_gptq", "quant.tune.steps=1", "quant.calibration.source=self_generated"
    )
    assert "reserve less" in refusal("quant.tune.steps=1", "budget.train_seconds=20")


@pytest.mark.slow
def test_a_run_scores_the_tuned_file(tiny: OwnDataset, runs: Path) -> None:
    """In bf16, with drift correction, under a cap that is filled, within the clock."""
    small = ["quant=trellis", "quant.calibration.tokens=512", "quant.small_numel=64", "budget.train_seconds=1000"]
    more = ["quant.tune.steps=10", "quant.gptq.drift=true", "quant.fit=cap", "budget.artifact_bytes=90000"]
    bf16 = ["model.compute_dtype=bf16", "eval.dtype=bf16"]
    done = golf_main(*tiny_overrides(tiny), *small, *more, *bf16)
    assert done.returncode == 0, done.stderr
    result = read_result(only_run(runs) / "result.json")
    assert result.state == "ok" and result.tune_seconds and result.total_bytes and result.total_bytes <= 90_000
    assert re.search(r"tuned:steps \d+ held_out:", (only_run(runs) / "train.log").read_text())
