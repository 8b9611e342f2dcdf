"""The framework's part in the timed loop: warnings, checkpoints, recompilations. The exported script has none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from golf.training.loop.checkpoint import Checkpoints, Start
from golf.training.loop.recompiles import RecompileWatch


@dataclass
class LoopListener:
    """Saves checkpoints, notes what is compiled while the clock runs, and passes on warnings about the pace."""

    warn: Callable[[str], None]
    checkpoints: Checkpoints | None = None
    recompiles: RecompileWatch = field(default_factory=RecompileWatch)

    @property
    def start(self) -> Start:
        """Return the starting point of the loop: step 0, or the state of the loaded checkpoint."""
        return self.checkpoints.start if self.checkpoints else Start()

    def clock_runs(self) -> None:
        self.recompiles.start()

    def clock_stands(self) -> None:
        self.recompiles.stop()

    def is_checkpoint_due(self, train_seconds: float) -> bool:
        return self.checkpoints is not None and self.checkpoints.is_due(train_seconds)

    def save(self, start: Start) -> None:
        """Write a checkpoint from which training can go on at `start`."""
        if self.checkpoints:
            self.checkpoints.save(start)
