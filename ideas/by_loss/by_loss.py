"""Easy text first, or hard text: by the loss of a bigram model, or of an artifact."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from golf.artifact.container import load_weights_only
from golf.errors import GolfError
from golf.paths import resolve
from golf.settings.config import Config, scored_config
from golf.training.data.orders import DataOrder, Units
from golf.training.model.build import build_model
from golf.training.techniques.base import CHANGES_ORDER, Technique, technique

MOST_COUNTED = 10_000_000  # tokens that the bigram model is made of
# Losses of the passes so far, because the proofs before the clock ask for the first pass, too.
_known: dict[tuple[object, ...], np.ndarray] = {}


def bigram_losses(units: Units, vocab_size: int) -> Iterator[float]:
    """Yield the nats per token of each unit by counts of its text, one added to each pair."""
    counts, counted = np.ones((vocab_size, vocab_size)), 0
    for place in units.shuffled():
        tokens = units.read(place)
        np.add.at(counts, (tokens[:-1], tokens[1:]), 1)
        counted += tokens.size
        if counted > MOST_COUNTED:
            break
    nats = np.log(counts.sum(1, keepdims=True)) - np.log(counts)
    for place in range(units.lengths.size):
        tokens = units.read(place)
        # A document of one token has no pair.
        yield float(nats[tokens[:-1], tokens[1:]].mean()) if tokens.size > 1 else 0.0


def model_losses(units: Units, cfg: Config, path: str) -> Iterator[float]:
    """Yield the nats per token of each unit by the model of the artifact at `path`."""
    model, weights = build_model(scored_config(cfg)).eval(), load_weights_only(resolve(path), cfg.quant, cfg.tech)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise GolfError(
            f"The artifact {path} is of another model than this run's: name one of the same model."
        ) from error
    longest = cfg.data.train_seq_len + 1
    for place in range(units.lengths.size):
        ids = torch.from_numpy(units.read(place)[:longest].astype(np.int64))[None]
        with torch.no_grad():
            yield model.token_losses(ids[:, :-1], ids[:, 1:]).mean().item() if ids.numel() > 1 else 0.0


def by_loss(units: Units, *, cfg: Config, artifact: str, hardest_first: bool) -> np.ndarray:
    """Return places by their loss, int64 `[n]`."""
    key = (artifact, cfg.data.path, cfg.model.vocab_size, units.number, units.seed, units.lengths.size)
    if key not in _known:
        losses = model_losses(units, cfg, artifact) if artifact else bigram_losses(units, cfg.model.vocab_size)
        _known[key] = np.fromiter(losses, dtype=np.float64)
    return np.argsort(-_known[key] if hardest_first else _known[key], kind="stable")


@technique("by_loss")
@dataclass
class ByLoss(Technique):
    """Each rank computes all losses, so ranks on unlike machines may differ, which ends the run before its clock."""

    source = "PR #1745 and #1397 (bigram surprise), PR #650 (loss of a small model)"
    effect = CHANGES_ORDER

    artifact: str = (
        ""  # of an earlier run with the same model, which gives the losses; empty = a bigram model of the text
    )
    hardest_first: bool = False

    def data_order(self, cfg: Config) -> DataOrder:
        """Return the order."""
        return partial(by_loss, cfg=cfg, artifact=self.artifact, hardest_first=self.hardest_first)
