"""Exponential moving average of the weights, in place of the last ones at the end."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from golf.errors import GolfError
from golf.registry import Variable
from golf.run.progress import Progress
from golf.settings.config import Config
from golf.training.model.gpt import GPT
from golf.training.techniques.base import CHANGES_WEIGHTS, Averager, Technique, technique


class MovingAverage:
    """e ← decay·e + (1-decay)·w after every step, in float32 over the whole state dict, without bias correction."""

    def __init__(self, model: GPT, decay: float):
        self.decay, self.updates = decay, 0
        # Detached tensors share the parameters' memory, so that every update reads the newest weights.
        self.live = {k: t.detach() for k, t in model.state_dict().items() if t.is_floating_point()}
        # In float32, because bf16 would round a change of 0.3 % of the distance away.
        self.average = {k: t.float().clone() for k, t in self.live.items()}

    @torch.no_grad()
    def update(self, progress: Progress) -> None:
        self.updates += 1
        now = [t.float() for t in self.live.values()]
        torch._foreach_lerp_(list(self.average.values()), now, 1.0 - self.decay)

    def weights(self) -> dict[str, Tensor]:
        return {k: t.to(self.live[k].dtype) for k, t in self.average.items()}

    def state_dict(self) -> dict[str, Tensor]:
        return {**self.average, "updates": torch.tensor(self.updates)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.updates = int(state["updates"])
        self.average = {k: state[k].clone() for k in self.average}


@technique("ema")
@dataclass
class EMA(Technique):
    """Horizon: 1 / (1 - decay) steps, 333 at 0.997. `${decay:…}` shortens it with the steps of the scale."""

    source = "PR #287"
    variables = (
        Variable("EMA_ENABLED", selects=True),
        Variable("EMA_DECAY", "decay"),
    )
    effect = CHANGES_WEIGHTS
    conflicts = ("swa",)

    decay: float = 0.997

    def check(self, cfg: Config) -> None:
        if not 0 <= self.decay < 1:
            raise GolfError(f"tech.ema.decay={self.decay} has to lie from 0 to below 1; drop=[ema] takes it out.")

    def averager(self, model: GPT) -> Averager:
        return MovingAverage(model, self.decay)
