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
from golf.training.loop.checkpoint import Start
from golf.training.loop.listener import LoopListener
from golf.training.loop.schedule import (
    TrainClock,
    lr_multiplier,
    muon_momentum,
    progress_fraction,
    schedule_decay,
)
from golf.training.loop.state import TrainState

FIRST_STEPS_LOGGED = 10
PACE_KNOWN_STEPS = 10  # enough to tell how long a step takes
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


def train(
    cfg: Config,
    state: TrainState,
    loader: Loader,
    validate: Callable[[bool], Score],
    log: TrainLog,
    listener: LoopListener | None = None,
) -> Training:
    """Train `state` in place until the budget is used up. Every rank takes as many steps as rank 0's clock allows.

    `validate(last)` scores the weights as they are, or the weights that are exported if `last`. If `listener` has
    loaded a checkpoint, the caller has moved `loader` behind the checkpoint's batches.
    """
    ranks, clock, step, loss = state.ranks, TrainClock(state.ranks), 0, None
    if listener is not None:
        start = listener.start
        clock, step, loss = TrainClock(ranks, start.train_seconds), start.step, start.train_loss
    # The mean of the steps behind these tells the length of the next step.
    paced_step, paced_seconds = 0, 0.0
    # What the listener reads beforehand costs no training time.
    if listener is not None:
        listener.clock_runs()
    clock.start()
    while True:
        # Ranks agree on one reading: with clocks of their own they would part in learning rate and number of steps.
        seconds = clock.agreed_seconds()
        if _steps_left(cfg, step, seconds, paced_step, paced_seconds) < EXACT_STEPS:
            seconds = clock.agreed_seconds(exact=True)
        # A step that would not end within the budget is not begun.
        out_of_time = _steps_left(cfg, step, seconds, paced_step, paced_seconds) < 1
        last = out_of_time or step >= cfg.schedule.iterations
        # Checkpoints are written while the clock stands.
        if listener is not None and not last and listener.is_checkpoint_due(seconds):
            clock.pause()
            stage_steps = tuple(state.stages.steps) if has_stages(cfg) else ()
            listener.save(Start(step, clock.agreed_seconds(), loss, state.switches.on, stage_steps))
            clock.start()
        # Validation takes no training time either. It comes before the step, so that step 0 can be validated.
        if last or _validation_is_due(cfg, step):
            clock.pause()
            # Graphs that a validation compiles cost no training time and are not reported.
            if listener is not None:
                listener.clock_stands()
            score = validate(last)
            log.validation(step, clock.seconds, score)
            if last or not math.isfinite(score.val_loss):
                break
            if listener is not None:
                listener.clock_runs()
            clock.start()
            # The pause has waited for the device, so that no queued work is missing from this reading.
            seconds = clock.agreed_seconds()
        multiplier = lr_multiplier(cfg, step, seconds)
        progress = Progress(step, progress_fraction(cfg, step, seconds), multiplier)
        schedule_decay(cfg, state.step.optimizer, progress.fraction)
        state.hooks.begin_step(progress)
        before = state.switches.on
        active = state.switches.advance(progress)
        for name in [name for name in active if name not in before]:
            log.switched_on(name, progress)
        state.hooks.switch(before, active)
        if active != before:
            # Steps have another length from here on, such as those of a loop.
            paced_step, paced_seconds = step, seconds
        next_batch = loader.next_batch
        if has_stages(cfg):
            stage = state.stages.number
            multiplier *= state.stages.advance(progress)
            if state.stages.number != stage:
                log.switched_on(f"stages[{state.stages.number}]", progress)
                # Another stage has steps of another length.
                paced_step, paced_seconds = step, seconds
            next_batch = state.stages.cutting(next_batch)
        tensor = state.step(next_batch, multiplier, muon_momentum(cfg.optim, step), active)
        step += 1
        # Averages are taken by the number of finished steps.
        state.hooks.after_step(progress._replace(step=step))
        # Reading the loss waits for the device, so it is read only where it is logged.
        every = cfg.launch.train_log_every
        logged = step <= FIRST_STEPS_LOGGED or (every > 0 and step % every == 0)
        if logged:
            loss = ranks.sum(tensor.item())[0] / ranks.world_size
        log.train_step(step, clock.seconds, loss if logged else None, multiplier)
        if listener is not None and step == PACE_KNOWN_STEPS:
            listener.warn_of_pace(cfg, step, clock.seconds)
        # Such a loss does not recover, so the rest of the budget is not spent.
        if loss is not None and not math.isfinite(loss):
            clock.pause()
            return Training(step, clock.seconds, loss, None, diverged=True)
    if out_of_time:
        log.stopping_early(step, clock.seconds)
    return Training(step, clock.seconds, loss, score, not math.isfinite(score.val_loss))


def _validation_is_due(cfg: Config, step: int) -> bool:
    every = cfg.eval.val_loss_every
    return every > 0 and step % every == 0 and (step > 0 or cfg.eval.val_at_start)


def _steps_left(cfg: Config, step: int, seconds: float, paced_step: int, paced_seconds: float) -> float:
    """Return how many steps of mean length still end within the budget. The mean is that behind `paced_step`."""
    # Before the first step there is no mean length to judge by.
    if step == paced_step or training_seconds(cfg) == 0:
        return math.inf
    return (training_seconds(cfg) - seconds) / ((seconds - paced_seconds) / (step - paced_step))
