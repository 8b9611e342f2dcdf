"""The timed loop: steps until the budget or the step cap is used up, validations outside the clock."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from golf.bits import Score
from golf.run.progress import Progress
from golf.run.trainlog import TrainLog
from golf.settings.config import Config, training_seconds
from golf.training.data.loader import Loader
from golf.training.loop.checkpoint import Checkpoints, Start
from golf.training.loop.recompiles import RecompileWatch
from golf.training.loop.schedule import (
    TrainClock,
    decays_from_the_start,
    lr_multiplier,
    muon_momentum,
    progress_fraction,
)
from golf.training.loop.steps import TrainStep
from golf.training.loop.switches import StepHooks, Switches
from golf.training.ranks import Ranks

FIRST_STEPS_LOGGED = 10
PACE_KNOWN_STEPS = 10  # enough to tell how long a step takes
EXACT_STEPS = 5  # before the budget ends the host waits for the device, which it otherwise runs ahead of


@dataclass(frozen=True)
class Training:
    """How the timed part went."""

    steps: int
    seconds: float
    train_loss: float | None  # nats, the last one logged
    score: Score | None  # of the final weights; None if the loss was not a number any more
    diverged: bool


def train(
    cfg: Config,
    step_once: TrainStep,
    loader: Loader,
    validate: Callable[[bool], Score],
    ranks: Ranks,
    log: TrainLog,
    switches: Switches,
    hooks: StepHooks,
    checkpoints: Checkpoints | None = None,
    watch: RecompileWatch | None = None,
    warn: Callable[[str], None] | None = None,
) -> Training:
    """Train in place. Every rank takes the same number of steps: rank 0's clock decides for all.

    `validate(last)` scores the weights as they are, or with `last` those that are exported. If `checkpoints` has
    loaded one, `loader` stands behind its batches. `watch` learns what is compiled while the clock runs, `warn` what
    the pace makes of the schedule.
    """
    start = checkpoints.start if checkpoints else Start()
    clock, step, loss = TrainClock(ranks.device, start.train_seconds), start.step, start.train_loss
    clock.start()
    if watch:
        watch.start()
    while True:
        seconds = clock.agreed_seconds(ranks)
        if _steps_left(cfg, step, seconds) < EXACT_STEPS:
            seconds = clock.agreed_seconds(ranks, exact=True)
        out_of_time = _steps_left(cfg, step, seconds) < 1
        last = out_of_time or step == cfg.schedule.iterations
        if checkpoints and not last and checkpoints.is_due(seconds):
            clock.pause()
            checkpoints.save(Start(step, clock.agreed_seconds(ranks), loss, switches.active))
            clock.start()
        if last or _validation_is_due(cfg, step):
            clock.pause()
            if watch:
                watch.stop()
            score = validate(last)
            log.validation(step, clock.seconds, score)
            if last or not math.isfinite(score.val_loss):
                break
            if watch:
                watch.start()
            clock.start()
            seconds = clock.agreed_seconds(ranks)
        multiplier = lr_multiplier(cfg, step, seconds)
        progress = Progress(step, progress_fraction(cfg, step, seconds), multiplier)
        hooks.before_step(progress)
        tensor = step_once(loader.next_batch, multiplier, muon_momentum(cfg.optim, step), switches.advance(progress))
        step += 1
        hooks.after_step(progress._replace(step=step))
        logged = step <= FIRST_STEPS_LOGGED or step % cfg.launch.train_log_every == 0
        if logged:
            loss = ranks.sum(tensor.item())[0] / ranks.world_size
        log.train_step(step, clock.seconds, loss if logged else None, multiplier)
        if warn and step == PACE_KNOWN_STEPS and (warning := decays_from_the_start(cfg, step, clock.seconds)):
            warn(warning)
        if loss is not None and not math.isfinite(loss):
            clock.pause()
            return Training(step, clock.seconds, loss, None, diverged=True)
    if out_of_time:
        log.stopping_early(step, clock.seconds)
    return Training(step, clock.seconds, loss, score, not math.isfinite(score.val_loss))


def _validation_is_due(cfg: Config, step: int) -> bool:
    every = cfg.eval.val_loss_every
    return every > 0 and step % every == 0 and (step > 0 or cfg.eval.val_at_start)


def _steps_left(cfg: Config, step: int, seconds: float) -> float:
    """How many steps of mean length still end within the budget."""
    if step == 0 or training_seconds(cfg) == 0:
        return math.inf
    return (training_seconds(cfg) - seconds) / (seconds / step)
