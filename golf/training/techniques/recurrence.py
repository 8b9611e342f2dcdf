"""Depth recurrence: a stretch of layers is run several times, from the start or from a fraction of the run on."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from golf.errors import GolfError
from golf.run.progress import Progress
from golf.settings.config import Config
from golf.training.model.gpt import GPT, route_through
from golf.training.techniques.base import Technique, technique


@technique("recurrence")
@dataclass
class Recurrence(Technique):
    """Layers `first` … `last` run `passes` times: 0, 1, (2, 3), (2, 3), 4, …, split in half for the U-net skips.

    `passes` counts all of them, NUM_LOOPS of the public scripts the additional ones. Skip weights are made for the
    looped order and shared with the plain one.
    """

    source = "record 2026-04-05_SP8192_GPTQ-Embeddings_SDClip_Loop45x2; whole stack 2026-03-19_SlidingWindowEval"
    is_switch = True
    scored_with = True

    first: int = 0
    last: int | None = None  # null = the last layer
    passes: int = 2
    enable_at: float = 0.0  # fraction of the run

    def check(self, cfg: Config) -> None:
        last = cfg.model.num_layers - 1 if self.last is None else self.last
        if not 0 <= self.first <= last < cfg.model.num_layers:
            raise GolfError(
                f"tech.recurrence runs layers {self.first} to {last}, but there are 0 to {cfg.model.num_layers - 1}."
            )
        if self.passes < 2 or not 0 <= self.enable_at < 1:
            raise GolfError("tech.recurrence.passes has to be at least 2 and enable_at from 0 to below 1.")

    def edit_model(self, model: GPT, cfg: Config) -> None:
        order = list(range(cfg.model.num_layers))
        last = order[-1] if self.last is None else self.last
        looped = order[: self.first] + order[self.first : last + 1] * self.passes + order[last + 1 :]
        model.routes[self.name] = route = route_through(looped)
        model.active_in_scoring += (self.name,)
        if cfg.model.unet_skips:
            model.skip_weights = nn.Parameter(torch.ones(len(route.storing), cfg.model.model_dim))

    def is_on(self, progress: Progress) -> bool:
        return progress.fraction >= self.enable_at
