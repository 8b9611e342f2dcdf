"""Expected size (RMS) of trained weights. It decides the artifact's bytes if the scale of the codes has a floor.

The size depends on the optimizer's path length: the sum of its learning rates over the run, where weight decay
discounts old steps. Muon's step adds 1/√columns to a matrix's weights whatever its shape, so RMS · √columns is a
function of the path length alone: first proportional to it, then slower. Measured on small runs at widths 64 to 160
(docs/benchmarks.md). The embedding under Adam follows the same form with its own numbers.

In long runs with weight decay, the steps that it has not forgotten no longer point the same way: the weights are a
random walk, whose steps are alike while the momentum lasts. The smaller of both sizes holds (docs/planning.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from golf.settings.config import Config, techniques, training_seconds
from golf.training.loop.schedule import lr_multiplier, muon_weight_decay, weight_decay_factor
from golf.training.optim.groups import group_of

SHIPPED_SD = 0.15  # standard deviation of log size predicted from shipped measurements
MLP_GROWTH = 1.2  # growth of MLP matrices relative to attn.proj
SCHEDULE_POINTS = 2000
# Mean square of the walk over 1 / (1 − μ) times the sum of squared strides, by the bytes of three records; its log's sd
WALK, WALK_SD = 0.9, 0.2
# (path, RMS·√columns) of `blocks.attn.proj`, which starts at zero, and of `tok_emb`, at laptop scale
SHIPPED = {
    "matrix": ((0.08, 0.042), (0.42, 0.183), (0.85, 0.41), (1.7, 0.84), (4.2, 1.65), (9.0, 2.54), (18.1, 4.23)),
    "embed": ((0.65, 1.31), (2.1, 2.61), (4.1, 3.42), (5.3, 4.19), (11.2, 5.62), (22.6, 9.0)),
}


@dataclass(frozen=True)
class WeightSize:
    """Expected RMS of the weights of a role, and the standard deviation of its logarithm."""

    rms: float
    log_sd: float


def path_length(cfg: Config, role: str, steps: int) -> float:
    """Return the discounted sum of learning rates over `steps` for the optimizer group of `role`."""
    path = 0.0
    for stride, decay, count in _strides(cfg, role, steps):
        left = (1.0 - decay * stride) ** count
        # Sum of the geometric series that decay makes of equal strides.
        path = path * left + ((1.0 - left) / decay if decay * stride else count * stride)
    return path


def walk_length(cfg: Config, role: str, steps: int) -> float:
    """Return RMS·√columns of a role's matrices as a random walk of `steps` by Muon; infinity where Adam steps."""
    if _group(cfg, role) != "matrix" or cfg.optim.muon_momentum == 1:
        return math.inf
    squares = 0.0
    for stride, decay, count in _strides(cfg, role, steps):
        kept = (1.0 - decay * stride) ** 2
        left = kept**count
        squares = squares * left + stride**2 * ((1.0 - left) / (1.0 - kept) if decay * stride else count)
    return math.sqrt(WALK * squares / (1.0 - cfg.optim.muon_momentum))


def _strides(cfg: Config, role: str, steps: int) -> Iterator[tuple[float, float, int]]:
    """Yield learning rate, weight decay and number of steps for each stretch of the schedule.

    It is evaluated at `SCHEDULE_POINTS` steps at most; between them the learning rate counts as constant.
    """
    optim, group = cfg.optim, _group(cfg, role)
    embed_lr = optim.tied_embed_lr if cfg.model.tie_embeddings else optim.embed_lr
    lr = {"matrix": optim.matrix_lr, "scalar": optim.scalar_lr, "embed": embed_lr, "head": optim.head_lr}[group]
    # A schedule by the clock is asked as if all steps were equally long.
    seconds = training_seconds(cfg) / max(steps, 1)
    points = min(steps, SCHEDULE_POINTS)
    for point in range(points):
        step, end = steps * point // points, steps * (point + 1) // points
        decay = muon_weight_decay(cfg, step / steps) if group == "matrix" else optim.adam_wd
        yield lr * lr_multiplier(cfg, step, step * seconds), decay * weight_decay_factor(cfg, step / steps), end - step


def _group(cfg: Config, role: str) -> str:
    return group_of(role.replace("blocks.", "blocks.0."), torch.empty(0), techniques(cfg))


def expected_size(role: str, columns: int, path: float, tech: frozenset[str], walk: float = math.inf) -> WeightSize:
    """Predict the size of a role's weights from shipped measurements over `path`, at most that of a random `walk`."""
    along = _grown(role, path)
    sd = _shipped_sd(role, path) if along < walk else WALK_SD
    # Matrices of the MLP outgrow those of attention, whichever way they grow.
    grown = min(along, walk) * (MLP_GROWTH if ".mlp." in role else 1.0)
    return WeightSize(math.hypot(grown, _start(role, tech)) * columns**-0.5, sd)


def uniform_start(role: str, tech: frozenset[str]) -> float:
    """Return RMS·√columns of a role's uniform initial values: torch's 1/√3, or 0 for zeros and other distributions."""
    starts_at_zero = role.endswith("proj.weight") or "emb" in role or role.startswith("lm_head")
    return 0.0 if starts_at_zero or "ortho_init" in tech else 3**-0.5


def _grown(role: str, path: float) -> float:
    """Return what RMS·√columns has grown by, by log-log interpolation of the shipped growth.

    Beyond the ends the last slope is extended.
    """
    logs = [(math.log(p), math.log(z)) for p, z in _shipped_points(role)]
    x = math.log(max(path, 1e-6))
    i = min(max(sum(a <= x for a, _ in logs) - 1, 0), len(logs) - 2)
    (xa, ya), (xb, yb) = logs[i], logs[i + 1]
    return math.exp(ya + (x - xa) * (yb - ya) / (xb - xa))


def _shipped_sd(role: str, path: float) -> float:
    """Return the standard deviation of log size; it grows outside the measured range of paths."""
    points = _shipped_points(role)
    beyond = max(math.log(points[0][0] / path), math.log(path / points[-1][0]), 0.0) if path > 0 else 1.0
    return SHIPPED_SD * (1.0 + beyond)


def _shipped_points(role: str) -> Sequence[tuple[float, float]]:
    return SHIPPED["embed" if "emb" in role and "proj" not in role else "matrix"]


def _start(role: str, tech: frozenset[str]) -> float:
    """Return RMS·√columns of a role's initial values; a tall orthogonal matrix's 1/√(rows / columns) counts as 1/√3."""
    if "ortho_init" not in tech or not (start := uniform_start(role, tech - {"ortho_init"})):
        return uniform_start(role, tech)
    return start if role.endswith("fc.weight") else 1.0
