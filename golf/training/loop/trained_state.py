"""The weights of a run whose training an earlier start has ended, in the place of those that its state began with."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from golf.run.progress import Progress
from golf.training.loop.state import TrainState
from golf.training.model.weights import read_weights


class TrainedWeights:
    """An averager whose average stands: the trained weights, whatever the model holds."""

    updates = 0

    def __init__(self, weights: dict[str, Tensor]):
        self._weights = weights

    def update(self, progress: Progress) -> None:
        """Leave the weights as they are."""

    def weights(self) -> dict[str, Tensor]:
        return self._weights

    def state_dict(self) -> dict[str, Tensor]:
        return self._weights

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Leave the weights as they are."""


def take_over(state: TrainState, weights: Path, stage_steps: list[int]) -> None:
    """Let `state` be that after the training: the weights of a file, and `stage_steps` steps of each stage."""
    stored = {name: tensor.to(state.ranks.device) for name, tensor in read_weights(weights).items()}
    state.hooks.averagers = {"trained": TrainedWeights(stored)}
    state.stages.resume(tuple(stage_steps))
