"""The timed loop: steps until the budget or the step cap is used up, validations outside the clock."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from golf.config import Config
from golf.data.loader import Loader
from golf.loop.clock import TrainClock
from golf.loop.schedule import lr_multiplier, muon_momentum
from golf.loop.steps import TrainStep
from golf.ranks import Ranks
from golf.report.runlog import RunLog
from golf.scoring.bits import Score

FIRST_STEPS_LOGGED = 10
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
    validate: Callable[[], Score],
    ranks: Ranks,
    log: RunLog,
) -> Training:
    """Train in place. Every rank takes the same number of steps: rank 0's clock decides for all."""
    clock, step, loss = TrainClock(ranks.device), 0, None
    clock.start()
    while True:
        seconds = clock.agreed_seconds(ranks)
        if _steps_left(cfg, step, seconds) < EXACT_STEPS:
            seconds = clock.agreed_seconds(ranks, exact=True)
        out_of_time = _steps_left(cfg, step, seconds) < 1
        last = out_of_time or step == cfg.schedule.iterations
        if last or _validation_is_due(cfg, step):
            clock.pause()
            score = validate()
            log.validation(step, clock.seconds, score)
            if last or not math.isfinite(score.val_loss):
                break
            clock.start()
            seconds = clock.agreed_seconds(ranks)
        multiplier = lr_multiplier(cfg, step, seconds)
        tensor = step_once(loader.next_batch, multiplier, muon_momentum(cfg.optim, step))
        step += 1
        logged = step <= FIRST_STEPS_LOGGED or step % cfg.launch.train_log_every == 0
        if logged:
            loss = ranks.sum(tensor.item())[0] / ranks.world_size
        log.train_step(step, clock.seconds, loss if logged else None, multiplier)
        if loss is not None and not math.isfinite(loss):
            clock.pause()
            return Training(step, clock.seconds, loss, None, diverged=True)
    if out_of_time:
        log.stopping_early(step, clock.seconds)
    return Training(step, clock.seconds, loss, score, diverged=not math.isfinite(score.val_loss))


def _validation_is_due(cfg: Config, step: int) -> bool:
    every = cfg.eval.val_loss_every
    return every > 0 and step % every == 0 and (step > 0 or cfg.eval.val_at_start)


def _steps_left(cfg: Config, step: int, seconds: float) -> float:
    """How many steps of mean length still end within the budget."""
    if step == 0 or cfg.budget.train_seconds == 0:
        return math.inf
    return (cfg.budget.train_seconds - seconds) / (seconds / step)
