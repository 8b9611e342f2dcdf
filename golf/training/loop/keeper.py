"""Keeper of a run: it writes the log, the artifact, and what another start or a reader of the run needs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from golf.artifact.container import load_weights_only
from golf.artifact.quant.formats import Tensors
from golf.bits import Score
from golf.run.trainlog import TrainLog
from golf.settings.config import Config, scored_config, trains_apart
from golf.training.data.loader import SkippingLoader
from golf.training.loop.calibration import Calibration
from golf.training.loop.checkpoint import Checkpoints
from golf.training.loop.clock import TrainClock
from golf.training.loop.packing import PackedModel, log_sizes
from golf.training.loop.state import TrainState
from golf.training.loop.training import Training
from golf.training.loop.warmup import warm_up
from golf.training.ranks import Ranks


class Keeper:
    """Keeper of a log, and of an artifact that counts with the bytes of code. `RunKeeper` keeps a whole run folder.

    `train_pack_and_score` calls its methods in this order. Those without a body are for a run folder alone.
    """

    def __init__(self, ranks: Ranks, log: TrainLog, artifact: Path, code_bytes: int):
        self.ranks, self.log, self.artifact, self.code_bytes = ranks, log, artifact, code_bytes
        self.clock = TrainClock(ranks)
        self.earlier: Training | None = None  # the training, if an earlier start has ended it
        self.checkpoints: Checkpoints | None = None  # a script has none

    def take_over(self, state: TrainState) -> None:
        """Take over what an earlier start has trained, and prepare the log."""

    def warm_up(self, cfg: Config, state: TrainState) -> None:
        """Compile, before the clock."""
        warm_up(cfg, state, self.log.warmup_step)

    def has_artifact(self) -> bool:
        """Tell, the same on every rank, whether an earlier start has written the artifact."""
        return False

    def resume(self, state: TrainState, loader: SkippingLoader) -> None:
        """Go on from the last checkpoint, with `loader` behind the batches that were taken before."""

    def training_ended(self, state: TrainState, training: Training) -> None:
        """Make the training safe, whatever comes after it."""

    def calibration_ended(self, calibration: Calibration | None) -> None:
        """Write down what the calibration took."""

    def tuning_ended(self, seconds: float) -> None:
        """Write down what retraining and tuning took so far."""

    def note_memory(self) -> None:
        """Log the peak memory of the training."""
        if self.ranks.device.type == "cuda":
            self.log.peak_memory(torch.cuda.max_memory_allocated() >> 20, torch.cuda.max_memory_reserved() >> 20)

    def prove_trained(self, state: TrainState) -> None:
        """Prove the scores of the trained weights."""

    def write_artifact(self, cfg: Config, packed: PackedModel) -> None:
        """Write the artifact and log its size."""
        self.artifact.write_bytes(packed.artifact)
        log_sizes(cfg, packed, packed.weight_bytes, self.code_bytes, self.log)

    def artifact_ended(self) -> None:
        """Note the time from which on the artifact is there for all ranks."""

    def read_artifact(self, cfg: Config) -> Tensors:
        """Return the weights that the artifact holds."""
        if trains_apart(cfg):
            cfg = scored_config(cfg)
        return load_weights_only(self.artifact, cfg.quant, cfg.tech, cfg.model)

    def judge(self, scores: Sequence[Score | None]) -> None:
        """Judge the run by the scores of its artifact: the standard one, the sliding one and that with training."""
