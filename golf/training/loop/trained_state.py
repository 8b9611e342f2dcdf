"""The state of a run whose training an earlier start has ended: it holds the trained weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from golf.training.loop.state import TrainState
from golf.training.model.weights import read_weights


@dataclass(frozen=True)
class TrainedState(TrainState):
    """A state whose weights no step changes any more."""

    weights: dict[str, Tensor] = field(default_factory=dict)

    def final_weights(self) -> dict[str, Tensor]:
        return self.weights


def trained_state(state: TrainState, weights: Path, stage_steps: list[int]) -> TrainedState:
    """Return `state` with the trained weights of a file, after `stage_steps` steps of each stage."""
    stored = read_weights(weights)
    # In the order of the model, which the file has lost: tensors are packed in it.
    ordered = {name: stored[name].to(state.ranks.device) for name in state.model.scored_weights()}
    trained = TrainedState(
        state.step, state.switches, state.hooks, state.attention, state.kernels, state.calibration_model, ordered
    )
    trained.stages.resume(tuple(stage_steps))
    return trained
