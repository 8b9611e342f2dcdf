"""Stochastic weight averaging: the mean of snapshots taken while the learning rate decays."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from golf.registry import Variable
from golf.run.progress import Progress
from golf.settings.fields import number
from golf.training.model.gpt import GPT
from golf.training.techniques.base import CHANGES_WEIGHTS, Averager, Technique, technique


class SnapshotMean:
    """Mean in float32 of the weights at every `every`-th step whose learning-rate multiplier is below `start`."""

    def __init__(self, model: GPT, start: float, every: int):
        self.start, self.every, self.updates = start, every, 0
        # Detached tensors share the parameters' memory, so that a snapshot reads the newest weights.
        self.live = {k: t.detach() for k, t in model.state_dict().items() if t.is_floating_point()}
        self.total: dict[str, Tensor] = {}

    @torch.no_grad()
    def update(self, progress: Progress) -> None:
        if progress.lr_multiplier >= self.start or progress.step % self.every:
            return
        self.updates += 1
        if not self.total:
            self.total = {k: torch.zeros_like(t, dtype=torch.float32) for k, t in self.live.items()}
        torch._foreach_add_(list(self.total.values()), [t.float() for t in self.live.values()])

    def weights(self) -> dict[str, Tensor]:
        if not self.updates:
            return {k: t.clone() for k, t in self.live.items()}
        return {k: (t / self.updates).to(self.live[k].dtype) for k, t in self.total.items()}

    def state_dict(self) -> dict[str, Tensor]:
        return {**self.total, "updates": torch.tensor(self.updates)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.updates = int(state["updates"])
        # In the order of the weights, beside which they are summed.
        self.total = {k: state[k].clone() for k in self.live if k in state}


@technique("swa")
@dataclass
class SWA(Technique):
    """Public scripts from PR #414 on collect these snapshots and then export EMA weights; here they are used."""

    source = "record 2026-03-20_Int6_MLP3x_SmearGate_BigramHash_MuonWD_SWA"
    variables = (
        Variable("SWA_ENABLED", selects=True),
        Variable("SWA_EVERY", "every"),
        Variable("SWA_START_FRAC", "start"),
    )
    effect = CHANGES_WEIGHTS
    conflicts = ("ema",)

    start: float = number(0.5, above=0, at_most=1)  # learning-rate multiplier below which snapshots are taken
    every: int = number(50, at_least=1)  # steps between two snapshots

    def averager(self, model: GPT) -> Averager:
        return SnapshotMean(model, self.start, self.every)
