"""Latest weight averaging: the mean of the last few snapshots, whatever the learning rate does."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import torch
from torch import Tensor

from golf.registry import Variable
from golf.run.progress import Progress
from golf.settings.fields import number
from golf.training.model.gpt import GPT
from golf.training.techniques.base import CHANGES_WEIGHTS, Averager, Technique, technique


class LatestMean:
    """Mean in float32 of the weights at the last `count` steps that `every` divides."""

    def __init__(self, model: GPT, count: int, every: int):
        self.every, self.updates = every, 0
        self.live = {k: t.detach() for k, t in model.state_dict().items() if t.is_floating_point()}
        self.snapshots: deque[list[Tensor]] = deque(maxlen=count)

    def update(self, progress: Progress) -> None:
        if progress.step % self.every == 0:
            self.updates += 1
            self.snapshots.append([t.float().clone() for t in self.live.values()])

    def weights(self) -> dict[str, Tensor]:
        if not self.snapshots:
            return {k: t.clone() for k, t in self.live.items()}
        means = (torch.stack(tensors).mean(0) for tensors in zip(*self.snapshots, strict=True))
        return {k: mean.to(self.live[k].dtype) for k, mean in zip(self.live, means, strict=True)}

    def state_dict(self) -> dict[str, Tensor]:
        stacked = (torch.stack(tensors) for tensors in zip(*self.snapshots, strict=True))
        return {**dict(zip(self.live, stacked, strict=False)), "updates": torch.tensor(self.updates)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.updates = int(state["updates"])
        kept = [state[k].clone().unbind() for k in self.live if k in state]
        self.snapshots.extend(list(tensors) for tensors in zip(*kept, strict=True))


@technique("lawa")
@dataclass
class LAWA(Technique):
    source = "arXiv 2209.14981"
    variables = (
        Variable("LAWA_ENABLED", selects=True),
        Variable("LAWA_K", "count"),
        Variable("LAWA_FREQ", "every"),
    )
    effect = CHANGES_WEIGHTS
    conflicts = ("ema", "swa")

    count: int = number(10, at_least=1)  # snapshots that are averaged
    every: int = number(100, at_least=1)  # steps between two of them

    def averager(self, model: GPT) -> Averager:
        return LatestMean(model, self.count, self.every)
