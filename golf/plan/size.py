"""Predicted bytes of an artifact: the rehearsal, and the gaps of finished runs or shipped ones that correct it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from golf.artifact.quant.policy import tensor_class
from golf.plan.gaps import Gap, Measured, Place, distance, expected_gap
from golf.plan.history import FinishedRun
from golf.plan.planes import gptq_gap, plane_of
from golf.plan.rehearsal import Rehearsal, rehearse
from golf.plan.spread import Size, Walk, expected_size, path_length
from golf.plan.tensors import StoredTensor, matrix_roles, stored_tensors, weights_by_role
from golf.settings.config import Config, QuantConfig, scale_floor, tensor_classes
from golf.training.model.build import shapeless_model

NORMAL_95 = 1.96  # two-sided 95 %, in standard deviations
# standard deviation of what the sample and the codec make of weights of one distribution
REHEARSAL_ERROR = {"context": 0.002, "zlib": 0.002, "zstd": 0.006, "lzma": 0.003, "brotli": 0.003}
MOST_COMPARED = 12
MATRIX = "blocks.mlp.fc.weight"
SIZE_NEIGHBOURS = 6
SIZE_BY_PATH, GAP_BY_PATH = 0.7, 0.03  # how log size and bits a weight change with log path, about


class Interval(NamedTuple):
    """Expected value between the ends of a 95 % interval."""

    low: float
    expected: float
    high: float


class ArtifactSize(NamedTuple):
    bytes: Interval
    by_role: dict[str, float]  # expected bytes
    gap: float  # expected / rehearsed bytes - 1
    compared: int  # finished runs the gaps rest on; with none, on shipped ones alone
    rms: dict[str, float]  # expected size of the weights
    sized: int  # finished runs it rests on


def artifact_size(
    cfg: Config,
    tensors: Sequence[StoredTensor],
    steps: int,
    history: Sequence[FinishedRun],
    *,
    thorough: bool = True,
    steps_log_sd: float = 0.0,
) -> ArtifactSize:
    """Predict the artifact of `cfg` trained for `steps`; `thorough` stores older checkpoints again in its formats.

    `steps_log_sd` says how uncertain the steps are: the standard deviation of their logarithm.
    """
    sizes = weight_sizes(cfg, tensors, steps, history)
    if steps_log_sd:
        unsure = SIZE_BY_PATH * steps_log_sd
        sizes = {role: replace(size, log_sd=math.hypot(size.log_sd, unsure)) for role, size in sizes.items()}
    rms = {role: size.rms for role, size in sizes.items()}
    rehearsal = rehearse(cfg, tensors, rms)
    gaps, compared = role_gaps(cfg, tensors, steps, history, thorough)
    weights = weights_by_role(tensors)
    by_role = dict(rehearsal.by_role)
    for role, gap in gaps.items():
        by_role[role] = max(by_role[role] + gap.bits * weights[role] / 8, 0.0)
    expected = rehearsal.container + sum(by_role.values())
    # What moves the gap of one role, such as a longer path, moves others too: their errors are added, not squared.
    unsure = steps_log_sd * GAP_BY_PATH
    of_gaps = sum(math.hypot(gap.sd, unsure) * weights[role] / 8 for role, gap in gaps.items())
    spread = math.hypot(of_gaps, REHEARSAL_ERROR[cfg.quant.codec] * expected)
    low, high = _other_sizes(cfg, tensors, sizes, rehearsal)
    below, above = math.hypot(NORMAL_95 * spread, low), math.hypot(NORMAL_95 * spread, high)
    sized = min((size.runs for size in sizes.values()), default=0)
    interval = Interval(max(expected - below, 0.0), expected, expected + above)
    return ArtifactSize(interval, by_role, expected / rehearsal.total - 1, compared, rms, sized)


def has_floor(quant: QuantConfig) -> bool:
    """Whether the size of the weights of any class decides on its codes."""
    return any(scale_floor(how, quant) != "eps" for how in tensor_classes(quant).values())


def weight_sizes(
    cfg: Config, tensors: Sequence[StoredTensor], steps: int, history: Sequence[FinishedRun]
) -> dict[str, Size]:
    """How large the matrices of every role become that is stored as integers."""
    columns = {role: tensor.columns for role, tensor in matrix_roles(tensors).items()}
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


def role_gaps(
    cfg: Config, tensors: Sequence[StoredTensor], steps: int, history: Sequence[FinishedRun], thorough: bool
) -> tuple[dict[str, Gap], int]:
    """Expected gap of every role, and on how many finished runs they rest: those that are most like this one."""
    own = places(cfg, tensors, steps)
    planes = {role: plane_of(role, tensor_classes(cfg.quant)[tensor_class(role)], cfg) for role in own}
    gptq = {role: gptq_gap(role, tensor_classes(cfg.quant)[tensor_class(role)], cfg.quant) for role in own}
    evidence: dict[str, list[Measured]] = {role: [] for role in own}
    compared = 0
    for run, theirs in _nearest(own, [run for run in history if thorough or run.config.quant == cfg.quant]):
        measured = run.gaps(cfg.quant) or {}
        compared += bool(measured)
        for role in own.keys() & theirs.keys() & measured.keys():
            rounding = gptq[role].bits if run.was_stored_as(cfg.quant) else 0.0
            evidence[role].append(Measured(theirs[role], measured[role] - rounding))
    gaps = {role: expected_gap(planes[role], place, evidence[role]) for role, place in own.items()}
    return {r: Gap(gap.bits + gptq[r].bits, math.hypot(gap.sd, gptq[r].sd)) for r, gap in gaps.items()}, compared


def _nearest(own: Mapping[str, Place], history: Sequence[FinishedRun]) -> list[tuple[FinishedRun, dict[str, Place]]]:
    """The finished runs whose roles lie nearest, and where they lie."""
    found: list[tuple[float, int, FinishedRun, dict[str, Place]]] = []
    for run in history:
        cfg = run.config
        theirs = places(cfg, stored_tensors(cfg, shapeless_model(cfg).state_dict()), run.result.steps)
        if shared := own.keys() & theirs.keys():
            found.append((sum(distance(own[r], theirs[r]) for r in shared) / len(shared), len(found), run, theirs))
    return [(run, theirs) for _, _, run, theirs in sorted(found, key=lambda entry: entry[:2])[:MOST_COMPARED]]


def places(cfg: Config, tensors: Sequence[StoredTensor], steps: int) -> dict[str, Place]:
    """Where the roles of a run lie whose matrices are integers."""
    tech, batch, tied = frozenset(cfg.tech), cfg.data.train_batch_tokens, cfg.model.tie_embeddings
    return {
        role: Place(path_length(cfg, role, steps), batch, tensor.shape[0], tensor.columns, tech, tied)
        for role, tensor in matrix_roles(tensors).items()
    }


def _other_sizes(
    cfg: Config, tensors: Sequence[StoredTensor], sizes: Mapping[str, Size], rehearsal: Rehearsal
) -> tuple[float, float]:
    """How many bytes less and more it becomes where weights are as small and as large as they may be."""
    if not has_floor(cfg.quant):
        return 0.0, 0.0
    small, large = (
        rehearse(cfg, tensors, {r: s.rms * math.exp(sign * NORMAL_95 * s.log_sd) for r, s in sizes.items()}).total
        for sign in (-1, 1)
    )
    return rehearsal.total - small, large - rehearsal.total
