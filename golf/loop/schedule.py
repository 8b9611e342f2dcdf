"""What changes over a run as a function of step and clock: the learning-rate multiplier and Muon's momentum."""

from __future__ import annotations

from golf.config import Config, OptimConfig


def lr_multiplier(cfg: Config, step: int, elapsed_seconds: float) -> float:
    """Factor on every learning rate for the update after `step` finished ones.

    With a clock, the warm-down begins when the time left is what `warmdown_iters` steps take at the mean pace so
    far, and follows the time left down to zero. Without one it covers the last `warmdown_iters` of `iterations`.
    """
    warmdown, iterations, budget = (
        cfg.schedule.warmdown_iters,
        cfg.schedule.iterations,
        cfg.budget.train_seconds,
    )
    if warmdown == 0:
        return 1.0
    if budget == 0:
        return min(1.0, max(iterations - step, 0) / warmdown)
    warmdown_seconds = warmdown * elapsed_seconds / max(step, 1)
    left_seconds = max(budget - elapsed_seconds, 0.0)
    return left_seconds / warmdown_seconds if left_seconds < warmdown_seconds else 1.0


def muon_momentum(optim: OptimConfig, step: int) -> float:
    """Momentum, warmed up linearly over the first `muon_momentum_warmup_steps`."""
    f = min(step / optim.muon_momentum_warmup_steps, 1.0) if optim.muon_momentum_warmup_steps else 1.0
    return (1.0 - f) * optim.muon_momentum_warmup_start + f * optim.muon_momentum
