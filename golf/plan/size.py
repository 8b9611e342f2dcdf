"""Bytes of the artifact as an interval: the rehearsal, corrected by how far it was off for finished runs like this."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from scipy.special import stdtrit

from golf.config import Config, QuantConfig
from golf.plan.history import FinishedRun
from golf.plan.rehearsal import Rehearsal, rehearse
from golf.plan.spread import Walk, expected_size, path_length
from golf.plan.tensors import StoredTensor
from golf.quant.formats import QMAX

PRIOR_RUNS = 3  # what is assumed of the rehearsal's error counts as much as so many runs
ROW_MAX_ERROR = 0.01  # standard deviation of actual / rehearsed bytes where the largest weight sets the scale
CONFIDENCE = 0.975  # two-sided 95 %
MOST_COMPARED = 5
PRIOR_WEIGHT = 0.2  # of a factor of one, beside the nearest run
SIMILARITY = 0.35  # a run whose optimizer walked e^0.35 times as far counts for a third
OTHER_TECHNIQUES, OTHER_HEAD = 0.2, 1.0  # as different as a path e^0.2 or e times as long
MATRIX = "blocks.mlp.fc.weight"
SIZE_NEIGHBOURS = 6


class Interval(NamedTuple):
    """Expected value between the ends of a 95 % interval."""

    low: float
    expected: float
    high: float


class ArtifactSize(NamedTuple):
    bytes: Interval
    rehearsal: Rehearsal
    factor: float  # actual / rehearsed bytes of finished runs
    compared: int  # finished runs the factor rests on
    sized: int  # finished runs the size of the weights rests on; 0 where it does not matter


def artifact_size(
    cfg: Config, tensors: Sequence[StoredTensor], steps: int, history: Sequence[FinishedRun], *, thorough: bool = True
) -> ArtifactSize:
    """Predict the artifact of `cfg` trained for `steps`; `thorough` stores older checkpoints again in its formats."""
    sizes = weight_sizes(cfg, tensors, steps, history)
    rms = {role: size.rms for role, size in sizes.items()}
    rehearsal = rehearse(cfg, tensors, rms)
    ratios, weights = _ratios(cfg, tensors, steps, history, thorough)
    factor, half_width = combined(ratios, weights, ROW_MAX_ERROR)
    expected = rehearsal.total * factor
    low, high = expected * (1 - half_width), expected * (1 + half_width)
    if rms:
        off = {role: math.exp(2 * size.log_sd) for role, size in sizes.items()}
        small, large = (
            rehearse(cfg, tensors, {role: value * off[role] ** sign for role, value in rms.items()}).total * factor
            for sign in (-1, 1)
        )
        low = expected - math.hypot(expected - small, expected - low)
        high = expected + math.hypot(large - expected, high - expected)
    sized = min((size.runs for size in sizes.values()), default=0)
    return ArtifactSize(Interval(low, expected, high), rehearsal, factor, len(ratios), sized)


def has_floor(quant: QuantConfig) -> bool:
    """Whether the size of the weights decides on the codes."""
    return quant.scale_floor != "eps"


def weight_sizes(cfg: Config, tensors: Sequence[StoredTensor], steps: int, history: Sequence[FinishedRun]):
    """`Size` of every role whose matrices are stored as integers above a floor; empty without one."""
    if not has_floor(cfg.quant):
        return {}
    columns = {t.role: t.columns for t in tensors if t.format in QMAX and len(t.shape) == 2}
    tech = frozenset(cfg.tech)
    matrix_paths = {id(run): path_length(run.config, MATRIX, run.result.steps) for run in history}
    own = path_length(cfg, MATRIX, steps)
    near = sorted(history, key=lambda run: abs(math.log(matrix_paths[id(run)] / own)))[:SIZE_NEIGHBOURS]
    walks: dict[str, list[Walk]] = {role: [] for role in columns}
    for run in near:
        if measured := run.sizes():
            for role in columns.keys() & measured.keys():
                path = path_length(run.config, role, run.result.steps)
                walks[role].append(Walk(path, measured[role], frozenset(run.config.tech)))
    return {
        role: expected_size(role, columns[role], path_length(cfg, role, steps), tech, walks[role]) for role in columns
    }


def combined(ratios: Sequence[float], weights: Sequence[float], prior_error: float) -> tuple[float, float]:
    """Factor to correct by, and the relative half-width of a 95 % interval around it.

    `weights` are of evidence; a run just like the planned one has 1. The rehearsal itself counts as `PRIOR_RUNS` runs
    with `prior_error`, which keeps a few that happen to agree from promising more than they can.
    """
    nearest = max(weights, default=1.0)
    relative = [w / nearest for w in weights]
    factor = PRIOR_WEIGHT + sum(w * r for w, r in zip(relative, ratios, strict=True))
    factor /= PRIOR_WEIGHT + sum(relative)
    scatter = sum(w * (r - factor) ** 2 for w, r in zip(weights, ratios, strict=True))
    freedom = PRIOR_RUNS + sum(weights)
    variance = (PRIOR_RUNS * prior_error**2 + scatter) / freedom
    return factor, float(stdtrit(freedom, CONFIDENCE)) * math.sqrt(variance * (1 + 1 / (1.0 + sum(weights))))


def _ratios(
    cfg: Config, tensors: Sequence[StoredTensor], steps: int, history: Sequence[FinishedRun], thorough: bool
) -> tuple[list[float], list[float]]:
    """Stored over rehearsed bytes of the finished runs that are most like this one, in the formats of `cfg`."""
    path, params = path_length(cfg, MATRIX, steps), sum(t.numel for t in tensors)

    def distance(run: FinishedRun) -> float:
        far = 0.5 * abs(math.log((run.result.model_params or 1) / params))
        far += abs(math.log(path_length(run.config, MATRIX, run.result.steps) / path))
        far += OTHER_TECHNIQUES * (run.config.tech.keys() != cfg.tech.keys())
        return far + OTHER_HEAD * (run.config.model.tie_embeddings != cfg.model.tie_embeddings)

    of_use = [i for i, run in enumerate(history) if thorough or run.config.quant == cfg.quant]
    near = sorted((distance(history[i]), i) for i in of_use)[:MOST_COMPARED]
    found = [(history[i].ratio(cfg.quant, store_again=thorough), math.exp(-far / SIMILARITY)) for far, i in near]
    known = [(ratio, weight) for ratio, weight in found if ratio is not None]
    return [ratio for ratio, _ in known], [weight for _, weight in known]
