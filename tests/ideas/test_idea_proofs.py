"""Mistakes in ideas that proofs have to find, and right ideas that they must not refuse."""

from collections.abc import Callable
from pathlib import Path

import pytest

import golf
from golf.errors import GolfError
from golf.lab.plan.lines import lines_before_run
from golf.lab.proofs.run_proofs import failed_proofs
from golf.lab.proofs.setting_proofs import inert_settings

SMALL = [
    *("model=4l", "scale=laptop", "model.model_dim=32", "model.num_heads=2", "model.num_kv_heads=1"),
    *("model.compute_dtype=fp32", "data.train_seq_len=64", "eval.val_batch_tokens=1024", "eval.stride=16"),
]
IDEA = """
import random
from collections import defaultdict
from dataclasses import dataclass
import torch
from torch import nn
from golf.registry import CHANGES_LOSS, CHANGES_SCORE
from golf.training.model.layers import CastedLinear
from golf.training.scoring.predictor import Predictor, Proposal
from golf.training.techniques.base import Technique, technique

"""
NOISY = """
@technique("mistake")
@dataclass
class Mistake(Technique):
    source = "a test"

    def edit_model(self, model, cfg):
        model.after_norm["mix"].append(lambda x, ids: x * (1 + random.random()))
"""
# One of 64 matrices for each token: a short text reaches few of them.
EXPERTS = """
class Experts(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.maps = nn.ModuleList(CastedLinear(dim, dim) for _ in range(64))

    def forward(self, x, ids):
        return x + sum(expert(x) * (ids % 64 == i)[..., None] for i, expert in enumerate(self.maps))

@technique("mistake")
@dataclass
class Mistake(Technique):
    source = "a test"
    groups = (("experts.maps.*.weight", "matrix"),)

    def edit_model(self, model, cfg):
        model.experts = Experts(cfg.model.model_dim)
        model.after_norm["mix"].append(model.experts)
"""
# A layer of the network with the effect of a training loss.
LOSS_LAYER = """
@technique("mistake")
@dataclass
class Mistake(Technique):
    source = "a test"
    effect = CHANGES_LOSS
    groups = (("layers.*.weight", "matrix"),)

    def edit_model(self, model, cfg):
        model.layers = nn.ModuleList(CastedLinear(cfg.model.model_dim, cfg.model.model_dim) for _ in range(3))
        model.after_norm["mix"].append(lambda x, ids: x + sum(layer(x) for layer in model.layers))
"""
# The continuation of an earlier stretch of six tokens, with a distribution that sums to `total`.
MATCH = """
class Match(Predictor):
    def reset(self):
        self.tokens, self.after = [], {{}}

    def see(self, token):
        self.after[tuple(self.tokens[-6:])] = token
        self.tokens.append(token)

    def propose(self, history):
        found = self.after.get(tuple(self.tokens[-6:])) if len(self.tokens) >= 6 else None
        if found is None:
            return Proposal(0.0, lambda token: 1 / V)
        return Proposal(0.4, lambda token: {total} * (token == found))

@technique("mistake")
@dataclass
class Mistake(Technique):
    source = "a test"
    effect = CHANGES_SCORE

    def predictor(self, cfg):
        global V
        V = cfg.model.vocab_size
        found = Match()
        found.reset()
        return found
"""

REMEMBERS = """
from golf.artifact.quant.formats import OwnFormat
from golf.training.techniques.base import CHANGES_STORAGE

STEPS = {{}}

@dataclass(frozen=True)
class Remembering(OwnFormat):
    name: str
    bits: int = 4

    def codes(self, w):
        step = w.abs().max().clamp(min=1e-4) / 7 if w.numel() else torch.ones(())
        STEPS.setdefault("step", float(step))
        scales = torch.full((self.scale_count(w.shape),), float(step), dtype=torch.float16)
        return (w / scales.float().sum().clamp(min=1e-6)).round().clamp(-7, 7).to(torch.int8), scales

    def values(self, codes, scales):
        return codes.float() * {step}

    def scale_count(self, shape):
        return int(torch.Size(shape).numel() > 0)


@technique("mistake")
@dataclass
class Mistake(Technique):
    source = "a test"
    effect = CHANGES_STORAGE

    def number_format(self):
        return Remembering(self.name)
"""


def found(write: Callable[..., Path], code: str, *overrides: str) -> list[str]:
    folder = write("mistake", IDEA + code)
    return failed_proofs(golf.compose([f"ideas={folder}", *SMALL, "tech=[mistake]", *overrides]))


@pytest.mark.slow
def test_random_numbers_in_a_pass_are_called_by_their_name(write: Callable[..., Path]) -> None:
    said = found(write, NOISY)
    assert any("the same text has other scores the second time: they depend on random numbers" in line for line in said)


@pytest.mark.slow
def test_a_loss_that_changes_the_network_is_told_where_its_layers_belong(write: Callable[..., Path]) -> None:
    with pytest.raises(GolfError, match=r"layers.0.weight belongs to a training loss .* put it into training_only"):
        found(write, LOSS_LAYER)


@pytest.mark.slow
def test_a_mistake_in_every_layer_is_one_sentence(write: Callable[..., Path]) -> None:
    said = found(write, EXPERTS.replace("ids % 64 == i", "ids < 0"))
    assert len(said) == 2 and "parameter experts.maps.0.weight" in said[0] and "(and 63 alike)" in said[0], said


@pytest.mark.slow
def test_experts_that_a_short_text_does_not_reach_are_no_fault(write: Callable[..., Path]) -> None:
    assert found(write, EXPERTS) == []


@pytest.mark.slow
@pytest.mark.parametrize(("total", "is_fault"), [(1.0, False), (1.2, True)])
def test_long_matches_of_a_predictor_are_proved(total: float, is_fault: bool, write: Callable[..., Path]) -> None:
    said = found(write, MATCH.format(total=total))
    assert bool(said) == is_fault and all("probabilities" in line for line in said)


@pytest.mark.parametrize(
    ("step", "said"),
    [
        pytest.param("scales.float().sum()", "", marks=pytest.mark.slow),
        ('STEPS.get("step", 1.0)', "it decodes with what its coding kept in memory"),
        pytest.param('STEPS["step"]', "KeyError: 'step'", marks=pytest.mark.slow),
    ],
)
def test_a_format_that_decodes_from_memory_is_found(step: str, said: str, write: Callable[..., Path]) -> None:
    folder = write("mistake", IDEA + REMEMBERS.format(step=step))
    stored = [f"quant.{kind}.format=mistake" for kind in ("attn", "mlp")]
    cfg = golf.compose([f"ideas={folder}", *SMALL, "tech=[mistake]", "quant.small_numel=64", *stored])
    expected = f"a new process reads other weights of the number format mistake from the artifact: {said}"
    assert inert_settings(cfg, lambda _: True) == ([expected] if said else [])


def test_a_class_called_like_another_is_refused_before_the_training(write: Callable[..., Path]) -> None:
    cfg = golf.compose(
        [
            f"ideas={write('mistake', IDEA + NOISY.replace('class Mistake', 'class ZLoss'))}",
            *SMALL,
            "tech=[mistake,z_loss]",
        ]
    )
    with pytest.raises(GolfError, match=r"The class ZLoss of the technique (mistake|z_loss) is called like another"):
        lines_before_run(cfg)


def test_what_cannot_be_exported_is_refused_before_the_training(write: Callable[..., Path]) -> None:
    code = IDEA + "from golf.training.model.layers import *\n" + EXPERTS
    cfg = golf.compose([f"ideas={write('mistake', code)}", *SMALL, "tech=[mistake]"])
    with pytest.raises(GolfError, match=r"The export cannot follow .*: import names from modules instead"):
        lines_before_run(cfg)
