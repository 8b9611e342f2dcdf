"""Schedules by step and clock: learning-rate multiplier, weight decay, Muon's momentum, progress."""

from __future__ import annotations

import numpy as np

from golf.settings.config import Config, OptimConfig, training_seconds
from golf.training.optim.groups import Optimizer


def lr_multiplier(cfg: Config, step: int, elapsed_seconds: float) -> float:
    """Return the factor on every learning rate after `step` finished steps: 1, then linearly down to `min_lr`.

    With a time budget the warm-down follows the seconds that are left, without one the steps.
    """
    warmdown = warmdown_length(cfg, step, elapsed_seconds)
    budget, iterations = training_seconds(cfg), cfg.schedule.iterations
    left = max(budget - elapsed_seconds if budget else iterations - step, 0)
    return max(left / warmdown, cfg.schedule.min_lr) if left < warmdown else 1.0


def warmdown_length(cfg: Config, step: int, elapsed_seconds: float) -> float:
    """Return the length of the warm-down in seconds, or in steps if there is no time budget.

    `warmdown_iters` steps are turned into seconds by the mean pace so far (public baseline); on slow hardware that can
    be more than the whole budget. `warmdown_fraction` is a share of the budget at any pace (PR #1559).
    """
    schedule, budget = cfg.schedule, training_seconds(cfg)
    if schedule.warmdown_fraction > 0:
        constant = 1.0 - schedule.warmdown_fraction
        return budget - budget * constant if budget else schedule.iterations - int(schedule.iterations * constant)
    # Before the first step there is no pace to go by, and hardly any seconds have passed: no warm-down.
    return schedule.warmdown_iters * elapsed_seconds / max(step, 1) if budget else schedule.warmdown_iters


def decays_from_the_start(cfg: Config, step: int, elapsed_seconds: float) -> str | None:
    """Return a warning if the warm-down is as long as the whole run at the pace of `step` finished steps, else None."""
    share = warmdown_length(cfg, step, elapsed_seconds) / (training_seconds(cfg) or cfg.schedule.iterations)
    # Without a clock, a warm-down over all steps is what was asked for.
    if share < 1.0 or (share == 1.0 and not training_seconds(cfg)) or cfg.schedule.warmdown_fraction > 0:
        return None
    return (
        f"schedule.warmdown_iters={cfg.schedule.warmdown_iters} is {share:.1f} times the run at this pace "
        f"({1000 * elapsed_seconds / step:.0f} ms a step): the learning rate decays from the start. "
        "Set fewer, or schedule.warmdown_fraction=0.2 for the last fifth of the run."
    )


def muon_momentum(optim: OptimConfig, step: int) -> float:
    """Return the momentum, which grows linearly over the first `muon_momentum_warmup_steps`."""
    f = min(step / optim.muon_momentum_warmup_steps, 1.0) if optim.muon_momentum_warmup_steps else 1.0
    return (1.0 - f) * optim.muon_momentum_warmup_start + f * optim.muon_momentum


def muon_weight_decay(cfg: Config, fraction: float) -> float:
    """Return Muon's weight decay at the finished share `fraction` of the run.

    It is `optim.muon_wd` up to `muon_wd_taper_start` and falls linearly to `muon_wd_taper_final` times that (record
    2026-04-18_PR1626_CaseOps_Taper).
    """
    start, final = cfg.schedule.muon_wd_taper_start, cfg.schedule.muon_wd_taper_final
    fallen = min(max((fraction - start) / (1.0 - start), 0.0), 1.0)
    return cfg.optim.muon_wd * (1.0 + (final - 1.0) * fallen)


def weight_decay_factor(cfg: Config, fraction: float) -> float:
    """Return the factor on all weight decays at the finished share `fraction` of the run (PR #2020)."""
    shares, factors = cfg.schedule.weight_decay_shares, cfg.schedule.weight_decay_factors
    return float(np.interp(fraction, shares, factors)) if factors else 1.0


def schedule_decay(cfg: Config, optimizer: Optimizer, fraction: float) -> None:
    """Set the weight decays of a step at the finished share `fraction` of the run."""
    # Without a schedule the optimizers keep their own.
    if cfg.schedule.muon_wd_taper_final < 1.0 or cfg.schedule.weight_decay_factors:
        optimizer.set_decays(muon_weight_decay(cfg, fraction), weight_decay_factor(cfg, fraction))


def progress_fraction(cfg: Config, step: int, elapsed_seconds: float) -> float:
    """Return the finished share of the run, 0 to 1: of the time budget or of the steps, whichever is larger."""
    budget = training_seconds(cfg)
    return min(1.0, max(step / cfg.schedule.iterations, elapsed_seconds / budget if budget else 0.0))
