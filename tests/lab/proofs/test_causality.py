"""Planted leaks of all sizes, distances, places and growth: none passes; and what reads the past alone does."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from golf.lab.proofs.scoring_proofs import document_leaks, future_leaks, trained_breaches
from golf.settings.config import Config
from golf.training.data.dataset import Dataset
from golf.training.data.documents import BOS_ID
from golf.training.model.build import build_model
from golf.training.techniques.base import Technique
from tests.support import with_techniques

LENGTH = 48
SIZES = (1e-7, 1e-5, 1e-3, 0.1, 1.0)
DISTANCES = (1, 2, 7, LENGTH // 2, LENGTH - 1)
PLACES = ("values", "projection", "attention", "norm", "final_norm", "embedding", "mlp", "head", "loss")
ACROSS = ("rows", "documents")


def ahead(x: Tensor, distance: int) -> Tensor:
    """Return x_{t+distance} `[B, T, …]`, zero where a row ends."""
    return torch.cat((x[:, distance:], torch.zeros_like(x[:, :distance])), 1)


def before_by(x: Tensor, distance: int) -> Tensor:
    """Return x_{t-distance} `[B, T, …]`, zero where a row begins."""
    return torch.cat((torch.zeros_like(x[:, :distance]), x[:, :-distance]), 1)


@dataclass
class Leak(Technique):
    """Adds `size` times what is `distance` tokens later, in one place of the last layer."""

    name = "leak"
    place: str = "values"
    size: float = 1.0
    distance: int = 1

    def _gain(self, model: Any) -> Any:
        return 1.0

    def edit_model(self, model: Any, cfg: Config) -> None:
        def leaking(x: Tensor) -> Tensor:
            return x + self.size * self._gain(model) * ahead(x, self.distance)

        block = model.blocks[-1]
        before: Any
        if self.place == "values":
            block.attn.value_hooks["mix"].append(lambda attn, v, context: leaking(v))
        elif self.place == "projection":
            before = block.attn.project
            block.attn.project = lambda attn, x, active: before(attn, leaking(x), active)
        elif self.place == "attention":
            block.attn.output_hooks["gate"].append(lambda attn, y, v, x: leaking(y))
        elif self.place == "norm":
            before = block.attn_norm
            block.attn_norm = lambda x: leaking(before(x))
        elif self.place == "final_norm":
            before = model.final_norm
            model.final_norm = lambda x: leaking(before(x))
        elif self.place == "embedding":
            model.after_norm["mix"].append(lambda x, ids: leaking(x))
        elif self.place == "mlp":
            before = block.mlp.compute
            block.mlp.compute = lambda mlp, x, active: before(mlp, leaking(x), active)
        elif self.place == "head":
            model.before_cap.append(lambda model, logits: leaking(logits))
        elif self.place == "loss":
            before = model.nats
            model.nats = lambda logits, targets: leaking(before(logits, targets))
        elif self.place == "rows":
            model.after_norm["mix"].append(lambda x, ids: x + self.size * x.roll(self.distance, 0))
        elif self.place == "documents":
            # Of the past alone, so that it is a leak between documents and no other.
            model.after_norm["mix"].append(lambda x, ids: x + self.size * before_by(x.cumsum(1), self.distance))


def rows_of(cfg: Config, length: int = LENGTH, **model: Any) -> Config:
    shape, data = dataclasses.replace(cfg.model, **model), dataclasses.replace(cfg.data, train_seq_len=length)
    return dataclasses.replace(cfg, model=shape, data=data)


def leaks() -> Iterator[Leak]:
    for place, size, distance in itertools.product(PLACES, SIZES, DISTANCES):
        yield Leak(place, size, distance)
    for size in SIZES:
        yield Leak("rows", size, 1)


def passes(leak: Leak, cfg: Config) -> bool:
    if leak.place == "documents":
        return document_leaks(with_techniques(rows_of(cfg, within_documents=True), leak)) == []
    return future_leaks(with_techniques(rows_of(cfg), leak)) == []


@pytest.mark.parametrize("place", [*PLACES, *ACROSS])
def test_a_small_leak_in_any_place_is_found(place: str, tiny_cfg: Config) -> None:
    assert not passes(Leak(place, 1e-7), tiny_cfg)


@pytest.mark.slow
def test_no_leak_of_any_size_distance_or_place_passes(tiny_cfg: Config) -> None:
    planted = [*leaks(), *(Leak("documents", size, distance) for size in SIZES for distance in (1, 2, 7))]
    assert [leak for leak in planted if passes(leak, tiny_cfg)] == []


def test_a_leak_is_no_leak_where_it_reads_the_past(tiny_cfg: Config) -> None:
    for place in PLACES:
        assert passes(Leak(place, 0.0), tiny_cfg), place
    assert passes(Leak("documents", 0.0), tiny_cfg)


# Where or when a leak acts, of a text `[B, T]`: a mask that fits `[B, T, 1]`, or a plain truth.
CONDITIONS: dict[str, Callable[[Tensor], Any]] = {
    "when it is scored": lambda ids: not torch.is_grad_enabled(),
    "in a batch of many rows": lambda ids: ids.size(0) > 8,
    "in rows that are no whole chunks": lambda ids: ids.size(1) % 64 != 0,
    "in rows of whole chunks": lambda ids: ids.size(1) % 64 == 0,
    "in long rows": lambda ids: ids.size(1) > 500,
    "in short rows": lambda ids: ids.size(1) < 32,
    "in a row with a document's start": lambda ids: bool((ids == BOS_ID).any()),
    "at the first token": lambda ids: places(ids) == 0,
    "at the last token but one": lambda ids: places(ids) == ids.size(1) - 2,
    "at late tokens": lambda ids: places(ids) > 0.9 * ids.size(1),
    "at the end of a chunk of 64": lambda ids: places(ids) % 64 == 63,
    "at the end of a chunk of 80": lambda ids: places(ids) % 80 == 79,
    "at a document's start": lambda ids: (ids == BOS_ID)[..., None],
    "behind a document's start": lambda ids: (ids.roll(1, 1) == BOS_ID)[..., None],
    "before a document's start": lambda ids: (ids.roll(-1, 1) == BOS_ID)[..., None],
    "at a special token": lambda ids: (ids == 5)[..., None],
    "at a token that comes twice": lambda ids: (ids == ids.roll(1, 1))[..., None],
}
NEEDS_LENGTH = {"in rows of whole chunks", "in long rows", "at the end of a chunk of 64", "at the end of a chunk of 80"}


def places(ids: Tensor) -> Tensor:
    return torch.arange(ids.size(1))[None, :, None]


@dataclass
class ConditionalLeak(Technique):
    """Adds a small part of the next token where a condition holds."""

    name = "leak"
    condition: str = ""

    def edit_model(self, model: Any, cfg: Config) -> None:
        def leaking(x: Tensor, ids: Tensor) -> Tensor:
            return x + 1e-6 * ahead(x, 1) * CONDITIONS[self.condition](ids)

        model.after_norm["mix"].append(leaking)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_leak_behind_a_condition_is_found(condition: str, tiny_cfg: Config) -> None:
    cfg = rows_of(tiny_cfg, 512 if condition in NEEDS_LENGTH else LENGTH)
    assert future_leaks(with_techniques(cfg, ConditionalLeak(condition)))


def text(cfg: Config, length: int = 4 * LENGTH) -> Dataset:
    """A text of random tokens in documents of about 20."""
    tokens = np.random.default_rng(0).integers(2, cfg.model.vocab_size, length + 1)
    tokens[::20] = BOS_ID
    return Dataset([], [], tokens.astype(np.uint16), np.ones(length, np.int16), "")


def grown(cfg: Config, edit: Callable[[dict[str, Tensor]], object] = dict) -> list[str]:
    """Return what the proofs say of weights that `edit` changes as a training would."""
    weights = {name: tensor.clone() for name, tensor in build_model(cfg).scored_weights().items()}
    for name, tensor in weights.items():
        # Projections start at zero, behind which nothing shows.
        if name.endswith("proj.weight"):
            tensor.normal_(std=0.1, generator=torch.Generator().manual_seed(1))
    edit(weights)
    return trained_breaches(cfg, weights, text(cfg))


@dataclass
class GrowingLeak(Leak):
    """A leak behind a parameter, times `constant`; `power` flattens it where it is small."""

    name = "leak"
    start: float = 0.0
    power: int = 1

    def edit_model(self, model: Any, cfg: Config) -> None:
        model.leak_gain = nn.Parameter(torch.full((1,), self.start))
        super().edit_model(model, cfg)

    def _gain(self, model: Any) -> Any:
        return model.leak_gain**self.power


@pytest.mark.parametrize(("size", "start", "power"), [(1e-7, 1.0, 1), (1e-9, 2000.0, 1), (1e-3, 0.0, 1), (1.0, 0.0, 8)])
def test_a_leak_that_has_grown_is_found_in_the_trained_weights(
    size: float, start: float, power: int, tiny_cfg: Config
) -> None:
    cfg = with_techniques(rows_of(tiny_cfg), GrowingLeak("values", size, 1, start, power))
    said = grown(cfg, lambda weights: weights["leak_gain"].fill_(start or 0.5))
    assert any("with the trained weights, in rows of 48 tokens, token " in line for line in said), said


@pytest.mark.parametrize("condition", [name for name in CONDITIONS if name not in NEEDS_LENGTH])
def test_a_leak_behind_a_condition_is_found_in_the_trained_weights(condition: str, tiny_cfg: Config) -> None:
    assert any("changes the" in line for line in grown(with_techniques(rows_of(tiny_cfg), ConditionalLeak(condition))))


def test_honest_weights_have_no_leak(tiny_cfg: Config) -> None:
    for cfg in (rows_of(tiny_cfg), rows_of(tiny_cfg, within_documents=True)):
        assert grown(cfg) == []


def test_documents_are_proved_where_scores_alone_stay_within_them(tiny_cfg: Config) -> None:
    by_document = dataclasses.replace(tiny_cfg, eval=dataclasses.replace(tiny_cfg.eval, documents=True))
    leak = Leak("documents", 1e-7, 3)
    assert any("in another document" in line for line in document_leaks(with_techniques(by_document, leak)))
    assert any("in another document" in line for line in grown(with_techniques(rows_of(by_document), leak)))
    assert document_leaks(by_document) == []
