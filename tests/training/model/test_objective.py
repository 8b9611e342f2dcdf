"""Techniques for the training loss alone: scores, artifacts and proofs know them as that."""

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import golf
from golf.errors import GolfError
from golf.settings.config import Config, scored_config
from golf.training.loop.packing import pack_model, round_model
from golf.training.loop.steps import TrainStep
from golf.training.model.build import build_scored_model
from golf.training.model.gpt import GPT
from golf.training.model.objective import Pass, Term, Weigh
from golf.training.ranks import ALONE
from golf.training.techniques.base import CHANGES_LOSS, Technique
from tests.support import inert_techniques

SMALL = ["model=4l", "scale=laptop", "model.model_dim=32", "model.num_heads=2", "model.num_kv_heads=1"]


class Planted(Technique):
    """A technique of a test."""

    effect = CHANGES_LOSS
    name = "planted"


class Idle(Planted):
    """Adds nothing."""


class Edits(Planted):
    """Says that it changes the loss alone, and scales the output of a block."""

    def edit_model(self, model: GPT, cfg: Config) -> None:
        attention: Any = model.blocks[0].attn
        attention.output_hooks["gate"].append(lambda attn, y, v, x: y * 2)


class Weighs(Planted):
    """Weighs the first half of the tokens alone."""

    def token_weights(self, cfg: Config) -> Weigh:
        def first_half(done: Pass) -> Tensor:
            places = torch.arange(done.nats.size(1)).expand_as(done.nats)
            return (places < done.nats.size(1) // 2).to(done.nats.dtype)

        return first_half


class Detached(Planted):
    """Adds a number through which no gradient flows."""

    def training_terms(self, cfg: Config) -> list[Term]:
        return [lambda done: done.nats.detach().mean()]


def with_technique(kind: type[Technique]) -> Config:
    cfg = golf.compose(SMALL)
    return dataclasses.replace(cfg, tech={"planted": kind()})


def test_weights_choose_the_tokens_of_the_mean() -> None:
    model = golf.build_model(with_technique(Weighs))
    ids = torch.randint(0, 1024, (2, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        nats = model.token_losses(ids[:, :-1], ids[:, 1:])
        torch.testing.assert_close(model(ids[:, :-1], ids[:, 1:]), nats[:, :4].mean())


@pytest.mark.parametrize("shape", [(), (8,), (2, 1)])
def test_weights_of_another_shape_are_refused(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Weighs, "token_weights", lambda self, cfg: lambda done: done.nats.new_ones(shape))
    model, ids = golf.build_model(with_technique(Weighs)), torch.zeros(2, 9, dtype=torch.long)
    with pytest.raises(
        GolfError, match=rf"token_weights returns {re.escape(str(list(shape)))}: return a weight a token"
    ):
        model(ids[:, :-1], ids[:, 1:])


@pytest.mark.parametrize(
    ("term", "said"),
    [(lambda done: None, "returns nothing"), (lambda done: done.nats, r"returns a tensor of shape \[2, 8\]")],
)
def test_a_term_that_is_no_scalar_is_refused(
    term: Callable[[Pass], Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Detached, "training_terms", lambda self, cfg: [term])
    model, ids = golf.build_model(with_technique(Detached)), torch.zeros(2, 9, dtype=torch.long)
    with pytest.raises(GolfError, match=said):
        model(ids[:, :-1], ids[:, 1:])


def test_terms_add_up_and_two_weights_are_refused() -> None:
    cfg = golf.compose([*SMALL, "tech=[z_loss,label_smoothing,focal_loss]"])
    ids = torch.randint(0, 1024, (2, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        losses: list[float] = []
        for names in (["focal_loss"], ["focal_loss", "z_loss"], ["focal_loss", "label_smoothing"], list(cfg.tech)):
            some = dataclasses.replace(cfg, tech={name: cfg.tech[name] for name in names})
            losses.append(golf.build_model(some)(ids[:, :-1], ids[:, 1:]).item())
    assert losses[3] == pytest.approx(losses[1] + losses[2] - losses[0], abs=1e-5)
    cfg.tech["planted"] = Weighs()
    with pytest.raises(GolfError, match="weigh the tokens"):
        golf.build_model(cfg)


def test_logs_have_the_plain_nats() -> None:
    cfg = golf.compose([*SMALL, "tech=[z_loss]", "tech.z_loss.weight=100", "model.compute_dtype=fp32"])
    cfg.data.micro_batches = 2
    model, twin = golf.build_model(cfg), golf.build_model(golf.compose([*SMALL, "model.compute_dtype=fp32"]))
    twin.load_state_dict(model.state_dict())
    step = TrainStep(cfg, model, golf.build_optimizer(cfg, model), ALONE)
    batches = [torch.randint(0, 1024, (2, 9)) for _ in range(2)]
    pairs = [(ids[:, :-1], ids[:, 1:]) for ids in batches]
    said = step(iter(pairs).__next__, 1.0, 0.9)
    with torch.no_grad():
        expected = sum(twin(*pair) for pair in pairs) / 2
    torch.testing.assert_close(said, expected)
    assert "mean_nats" not in model.state_dict()


def test_what_changes_nothing_or_the_score_is_named() -> None:
    assert inert_techniques(with_technique(Idle)) == ["planted changed no gradient of the network by its training loss"]
    # A number that nothing can follow changes the loss, and no weight.
    assert inert_techniques(with_technique(Detached)) == inert_techniques(with_technique(Idle))
    assert inert_techniques(with_technique(Weighs)) == []
    assert inert_techniques(with_technique(Edits)) == ["planted changes the score, and as a training loss it must not"]


def test_the_artifact_and_its_score_know_nothing_of_it() -> None:
    cfg, plain = golf.compose([*SMALL, "tech=[z_loss,normuon,ln_scale]"]), golf.compose([*SMALL, "tech=[ln_scale]"])
    state = golf.build_model(cfg).state_dict()
    packed, expected = (pack_model(c, state, round_model(c, state, 0)).artifact for c in (cfg, plain))
    assert packed == expected
    assert type(build_scored_model(cfg, torch.device("cpu"))) is GPT
    assert list(scored_config(cfg).tech) == ["ln_scale"] and sorted(cfg.tech) == ["ln_scale", "normuon", "z_loss"]


@pytest.mark.slow
def test_a_compiled_step_is_the_eager_one() -> None:
    cfg = golf.compose([*SMALL, "tech=[z_loss,label_smoothing,focal_loss]", "model.compute_dtype=fp32"])
    model, ids = golf.build_model(cfg), torch.randint(0, 1024, (2, 9))
    eager = model(ids[:, :-1], ids[:, 1:])
    expected = torch.autograd.grad(eager, list(model.parameters()))
    compiled = torch.compile(model, dynamic=False, fullgraph=True)(ids[:, :-1], ids[:, 1:])
    torch.testing.assert_close(compiled, eager, rtol=1e-5, atol=1e-5)
    for one, other in zip(torch.autograd.grad(compiled, list(model.parameters())), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)
