"""Stages of the training: the length of sequences and the size of batches over the run.

A loader gives micro-batches of the longest sequences, and a stage cuts their rows. A larger batch is more micro-batches
of one size, so that the tokens come in one order whatever the stages are.
"""

from __future__ import annotations

from torch import Tensor

from golf.run.progress import Progress
from golf.settings.config import Config, has_stages, is_packed, micro_batch_tokens, stages, world_size
from golf.training.loop.steps import NextBatch, TrainStep


class Stages:
    """Stages of a run, and the one that it is in."""

    def __init__(self, cfg: Config, step: TrainStep):
        self.all, self.number = stages(cfg), 0
        self.steps = [0] * len(self.all)  # steps taken in each
        self._step = step
        self._tokens = micro_batch_tokens(cfg) * world_size(cfg)  # of one micro-batch over all ranks
        self._rows_stay = is_packed(cfg) or not has_stages(cfg)
        self._warmup_steps = cfg.schedule.stage_warmup_steps
        if has_stages(cfg):
            self.enter(0)

    def enter(self, number: int) -> None:
        """Let the next step have the length and the batch of stage `number`."""
        self.number = number
        self._step.accumulation = self.all[number].batch_tokens // self._tokens
        # Rows of packed documents stay whole, and a document is cut into pieces of this length.
        self._step.model.piece_tokens = self.all[number].seq_len

    def advance(self, progress: Progress) -> float:
        """Enter the stage of the step at `progress`, count the step and return the factor on its learning rates."""
        number = self.number
        while progress.fraction > self.all[number].until:
            number += 1
        if number != self.number:
            self.enter(number)
        taken = self.steps[number]
        self.steps[number] += 1
        # The first stage begins with the warm-up of the run, if there is one.
        return (taken + 1) / self._warmup_steps if number and taken < self._warmup_steps else 1.0

    def cut(self, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Return inputs and targets `[B, T]` of a loader as rows of the stage's length."""
        if self._rows_stay:
            return batch
        seq_len = self.all[self.number].seq_len
        return batch[0].reshape(-1, seq_len), batch[1].reshape(-1, seq_len)

    def cutting(self, next_batch: NextBatch) -> NextBatch:
        """Return a function that returns the cut batches of `next_batch`."""
        return lambda: self.cut(next_batch())

    def resume(self, steps: tuple[int, ...]) -> None:
        """Count the `steps` of each stage that a checkpoint names. One without any is of a run in one stage."""
        self.steps = list(steps) or self.steps
        if len(self.all) > 1:
            self.enter(max((number for number, taken in enumerate(self.steps) if taken), default=0))

    def tokens_after(self, steps: int) -> int:
        """Return the tokens that `steps` steps read over all ranks, those not counted yet in the stage of now."""
        counted = zip(self.steps, self.all, strict=True)
        missing = (steps - sum(self.steps)) * self.all[self.number].batch_tokens
        return sum(taken * stage.batch_tokens for taken, stage in counted) + missing

    def batches_taken(self, steps: int) -> int:
        """Return the micro-batches that each rank has read in `steps` steps."""
        return self.tokens_after(steps) // self._tokens

    def never_reached(self) -> list[str]:
        """Return a sentence for every stage without a step."""
        return [f"schedule.stages[{i}] had no step" for i, taken in enumerate(self.steps[1:], 1) if not taken]
