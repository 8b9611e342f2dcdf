"""How large the weights of a run will be, which decides its bytes where the scale of the codes has a floor.

What matters is the path that the optimizer walks: the sum of its learning rates over the run, old steps forgotten at
the pace of the weight decay. Muon's step adds 1/√columns to a matrix's weights whatever its shape, so RMS · √columns
is a function of the path alone: for small paths proportional to it, then slower. Measured on small runs at
widths 64 to 160 (docs/benchmarks.md); the embedding under Adam follows the same form with its own numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from golf.plan.tensors import StoredTensor
from golf.settings.config import Config, techniques, training_seconds
from golf.training.loop.schedule import lr_multiplier
from golf.training.optim.groups import group_of

KERNEL = 0.5  # runs whose path is e^0.5 times as long count for a third
OTHER_TECHNIQUES = 0.3  # as far as a path e^0.3 times as long
PRIOR_SLOPE, PRIOR_SLOPE_SD = 0.7, 0.3  # of log size over log path
PRIOR_SD = 0.15  # of log size around what the path says, without runs that say better
SHIPPED_SD = 0.15
MLP_GROWTH = 1.2  # of MLP matrices, in attn.proj's
LEAST_GROWTH = 0.1  # of the size
SCHEDULE_POINTS = 2000
# (path, RMS·√columns) of `blocks.attn.proj`, which starts at zero, and of `tok_emb`, at laptop scale
SHIPPED = {
    "matrix": ((0.08, 0.042), (0.42, 0.183), (0.85, 0.41), (1.7, 0.84), (4.2, 1.65), (9.0, 2.54), (18.1, 4.23)),
    "embed": ((0.65, 1.31), (2.1, 2.61), (4.1, 3.42), (5.3, 4.19), (11.2, 5.62), (22.6, 9.0)),
}


@dataclass(frozen=True)
class Size:
    """Expected RMS of the weights of a role, and the standard deviation of its logarithm."""

    rms: float
    log_sd: float
    runs: int  # finished runs it rests on


@dataclass(frozen=True)
class Walk:
    """What a finished run says about a role: path walked, RMS·√columns reached, names of its techniques."""

    path: float
    size: float
    tech: frozenset[str]


def path_length(cfg: Config, role: str, steps: int) -> float:
    """Sum over the steps of learning rate · what decay leaves of it, for the optimizer group that `role` is in.

    The schedule is looked at `SCHEDULE_POINTS` times at most; in between the learning rate is taken to be constant.
    """
    optim = cfg.optim
    group = group_of(role.replace("blocks.", "blocks.0."), torch.empty(0), techniques(cfg))
    embed_lr = optim.tied_embed_lr if cfg.model.tie_embeddings else optim.embed_lr
    lr = {"matrix": optim.matrix_lr, "scalar": optim.scalar_lr, "embed": embed_lr, "head": optim.head_lr}[group]
    decay = optim.muon_wd if group == "matrix" else optim.adam_wd
    seconds = training_seconds(cfg) / max(steps, 1)
    path, points = 0.0, min(steps, SCHEDULE_POINTS)
    for point in range(points):
        step, end = steps * point // points, steps * (point + 1) // points
        stride = lr * lr_multiplier(cfg, step, step * seconds)
        left = (1.0 - decay * stride) ** (end - step)
        path = path * left + ((1.0 - left) / decay if decay * stride else (end - step) * stride)
    return path


def measured_sizes(tensors: Sequence[StoredTensor], weights: Mapping[str, Tensor]) -> dict[str, float]:
    """Mean over rows and layers of RMS·√columns of trained `weights`, for every role that has matrices."""
    rows: dict[str, list[Tensor]] = {}
    for tensor in tensors:
        if len(tensor.shape) == 2 and tensor.numel:
            of_rows = weights[tensor.name].float().square().mean(1).sqrt() * tensor.columns**0.5
            rows.setdefault(tensor.role, []).append(of_rows)
    return {role: float(torch.cat(found).mean()) for role, found in rows.items()}


def expected_size(role: str, columns: int, path: float, tech: frozenset[str], walks: Sequence[Walk]) -> Size:
    """Weighted regression of log growth on log path around `path`; without `walks` from the shipped measurements.

    Growth is what the steps have added to the initial values, in squares, because it is at a right angle to them.
    """
    if path <= 0 or not (found := [w for w in walks if w.path > 0 and w.size > 0]):
        return Size(_shipped(role, path, tech) * columns**-0.5, _shipped_sd(role, path), 0)
    x = [math.log(w.path / path) for w in found]
    starts = [_start(role, w.tech) for w in found]
    y = [math.log(max(w.size**2 - s**2, (LEAST_GROWTH * w.size) ** 2)) / 2 for w, s in zip(found, starts, strict=True)]
    far = [
        math.hypot(dx / KERNEL, OTHER_TECHNIQUES / KERNEL * (w.tech != tech)) for dx, w in zip(x, found, strict=True)
    ]
    nearest = min(far)
    weight = [math.exp(-0.5 * (f * f - nearest * nearest)) for f in far]
    total = sum(weight)
    mean_x = sum(w * a for w, a in zip(weight, x, strict=True)) / total
    mean_y = sum(w * b for w, b in zip(weight, y, strict=True)) / total
    ridge = (PRIOR_SD / PRIOR_SLOPE_SD) ** 2
    spread_x = sum(w * (a - mean_x) ** 2 for w, a in zip(weight, x, strict=True))
    product = sum(w * (a - mean_x) * (b - mean_y) for w, a, b in zip(weight, x, y, strict=True))
    slope = (product + ridge * PRIOR_SLOPE) / (spread_x + ridge)
    errors = [b - mean_y - slope * (a - mean_x) for a, b in zip(x, y, strict=True)]
    scatter = sum(w * e * e for w, e in zip(weight, errors, strict=True))
    variance = (PRIOR_SD**2 + scatter) / (1.0 + total)
    slope_variance = variance / (spread_x + ridge)
    log_sd = math.sqrt(variance * (1.0 + 1.0 / total) + slope_variance * mean_x**2)
    growth = math.exp(mean_y - slope * mean_x)
    size = math.hypot(growth, _start(role, tech))
    return Size(size * columns**-0.5, log_sd * (growth / size) ** 2, len(found))


def uniform_start(role: str, tech: frozenset[str]) -> float:
    """RMS·√columns that a matrix starts from, uniformly distributed: torch's 1/√3; 0 for zeros and other laws."""
    starts_at_zero = role.endswith("proj.weight") or "emb" in role or role.startswith("lm_head")
    return 0.0 if starts_at_zero or "ortho_init" in tech else 3**-0.5


def _shipped(role: str, path: float, tech: frozenset[str]) -> float:
    """RMS·√columns by log-log interpolation, the last slope beyond the ends, on top of what the matrix starts from."""
    points = SHIPPED["embed" if "emb" in role and "proj" not in role else "matrix"]
    logs = [(math.log(p), math.log(z)) for p, z in points]
    x = math.log(max(path, 1e-6))
    i = min(max(sum(a <= x for a, _ in logs) - 1, 0), len(logs) - 2)
    (xa, ya), (xb, yb) = logs[i], logs[i + 1]
    grown = math.exp(ya + (x - xa) * (yb - ya) / (xb - xa)) * (MLP_GROWTH if ".mlp." in role else 1.0)
    return math.hypot(grown, _start(role, tech))


def _shipped_sd(role: str, path: float) -> float:
    """More where nothing was measured."""
    points = SHIPPED["embed" if "emb" in role and "proj" not in role else "matrix"]
    beyond = max(math.log(points[0][0] / path), math.log(path / points[-1][0]), 0.0) if path > 0 else 1.0
    return SHIPPED_SD * (1.0 + beyond)


def _start(role: str, tech: frozenset[str]) -> float:
    """RMS·√columns that a matrix starts from; an orthogonal one that is tall has 1/√(rows / columns), taken as 1/√3."""
    if "ortho_init" not in tech or not (start := uniform_start(role, tech - {"ortho_init"})):
        return uniform_start(role, tech)
    return start if role.endswith("fc.weight") else 1.0
