"""The timed loop: steps until the budget or the step cap is used up, validations outside the clock."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from golf.bits import Score
from golf.run.progress import Progress
from golf.run.trainlog import TrainLog
from golf.settings.config import Config, has_stages, training_seconds
from golf.training.data.loader import Loader
from golf.training.loop.checkpoint import Checkpoints, Start
from golf.training.loop.clock import TrainClock
from golf.training.loop.schedule import lr_multiplier, muon_momentum, progress_fraction, schedule_decay
from golf.training.loop.state import TrainState

Validate = Callable[[bool], Score]  # validate(last): of the weights as they are, or of those that are exported if last
FIRST_STEPS_LOGGED = 10
# In the last steps of the budget the host waits for the device, which it otherwise runs ahead of.
EXACT_STEPS = 5


@dataclass(frozen=True)
class Training:
    """Outcome of the timed loop."""

    steps: int
    seconds: float
    train_loss: float | None  # nats per token, the last one logged
    score: Score | None  # score of the final weights; None if the loss was not a number any more
    diverged: bool

    def why_diverged(self) -> str:
        """Return a sentence on the loss that is no number."""
        kind, loss = ("validation loss", self.score.val_loss) if self.score else ("loss", self.train_loss)
        return f"the {kind} was {loss} at step {self.steps}"


class Pace:
    """Mean length of the steps since something changed it: a late switch, another stage."""

    def __init__(self, cfg: Config):
        self.budget_seconds = training_seconds(cfg)
        self.since_step, self.since_seconds = 0, 0.0

    def steps_left(self, step: int, seconds: float) -> float:
        """Return how many steps of mean length still end within the budget: any number before the first step."""
        if step == self.since_step or self.budget_seconds == 0:
            return math.inf
        return (self.budget_seconds - seconds) / ((seconds - self.since_seconds) / (step - self.since_step))


def train(
    cfg: Config,
    state: TrainState,
    loader: Loader,
    validate: Validate,
    log: TrainLog,
    clock: TrainClock,
    checkpoints: Checkpoints | None = None,
) -> Training:
    """Train `state` in place until the budget is used up. Every rank takes as many steps as rank 0's clock allows.

    If `checkpoints` has loaded one, the caller has moved `loader` behind its batches and set `clock` to its seconds.
    """
    ranks, pace, step, loss = state.ranks, Pace(cfg), 0, None
    if checkpoints is not None:
        step, loss = checkpoints.start.step, checkpoints.start.train_loss
    clock.start()
    while True:
        # ---- Time: ranks agree on one reading, or they would part in learning rate and number of steps. ----
        seconds = clock.agreed_seconds()
        if pace.steps_left(step, seconds) < EXACT_STEPS:
            seconds = clock.agreed_seconds(exact=True)
        # A step that would not end within the budget is not begun.
        out_of_time = pace.steps_left(step, seconds) < 1
        last = out_of_time or step >= cfg.schedule.iterations

        # ---- Checkpoint and validation: the clock stands. They come before the step, so that step 0 can have one. ----
        if checkpoints is not None and not last and checkpoints.is_due(seconds):
            clock.pause()
            stage_steps = tuple(state.stages.steps) if has_stages(cfg) else ()
            checkpoints.save(Start(step, clock.agreed_seconds(), loss, state.switches.on, stage_steps))
            clock.start()
        if last or (_is_due(step, cfg.eval.val_loss_every) and (step > 0 or cfg.eval.val_at_start)):
            clock.pause()
            score = validate(last)
            log.validation(step, clock.seconds, score)
            if last or not math.isfinite(score.val_loss):
                break
            clock.start()
            # The pause has waited for the device, so that no queued work is missing from this reading.
            seconds = clock.agreed_seconds()

        # ---- Step: schedules, late switches and stages first. ----
        multiplier = lr_multiplier(cfg, step, seconds)
        progress = Progress(step, progress_fraction(cfg, step, seconds), multiplier)
        schedule_decay(cfg, state.step.optimizer, progress.fraction)
        state.hooks.begin_step(progress)
        if _switch(state, progress, log):
            pace.since_step, pace.since_seconds = step, seconds
        next_batch = loader.next_batch
        if has_stages(cfg):
            stage = state.stages.number
            multiplier *= state.stages.advance(progress)
            if state.stages.number != stage:
                log.switched_on(f"stages[{state.stages.number}]", progress)
                pace.since_step, pace.since_seconds = step, seconds
            next_batch = state.stages.cutting(next_batch)
        tensor = state.step(next_batch, multiplier, muon_momentum(cfg.optim, step), state.switches.on)
        step += 1
        # Averages are taken by the number of finished steps.
        state.hooks.after_step(progress._replace(step=step))

        # ---- Log: reading the loss waits for the device, so it is read only where it is logged. ----
        is_logged = step <= FIRST_STEPS_LOGGED or _is_due(step, cfg.launch.train_log_every)
        if is_logged:
            loss = ranks.sum(tensor.item())[0] / ranks.world_size
        log.train_step(step, clock.seconds, loss if is_logged else None, multiplier)
        # Such a loss does not recover, so the rest of the budget is not spent.
        if loss is not None and not math.isfinite(loss):
            clock.pause()
            return Training(step, clock.seconds, loss, None, diverged=True)
    if out_of_time:
        log.stopping_early(step, clock.seconds)
    return Training(step, clock.seconds, loss, score, not math.isfinite(score.val_loss))


def _is_due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


def _switch(state: TrainState, progress: Progress, log: TrainLog) -> bool:
    """Switch on what is due at `progress`, and tell whether anything was."""
    before = state.switches.on
    active = state.switches.advance(progress)
    for name in [name for name in active if name not in before]:
        log.switched_on(name, progress)
    state.hooks.switch(before, active)
    return active != before
