"""Predicted bytes of an artifact: a simulation with Gaussian weights, corrected by the excess bits of trained ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from golf.artifact.quant.policy import tensor_class
from golf.lab.plan.excess_bits import (
    ExcessBits,
    Features,
    one_step_excess,
    prior_of,
    rare_rows_excess,
    rounding_excess,
    tuned_scales_excess,
)
from golf.lab.plan.simulation import Simulation, simulate
from golf.lab.plan.tensors import StoredTensors, matrix_roles, weights_by_role
from golf.lab.plan.weight_size import WeightSize, expected_size, path_length, walk_length
from golf.settings.config import Config, QuantConfig, mean_batch_tokens, scale_floor, tensor_classes

NORMAL_95 = 1.96  # half-width of a two-sided 95 % interval, in standard deviations
# Relative standard deviation of simulated bytes, by codec: error of the sample for weights of the same distribution
SIMULATION_ERROR = {"context": 0.002, "zlib": 0.002, "zstd": 0.006, "lzma": 0.003, "brotli": 0.003}
SIZE_BY_PATH, EXCESS_BY_PATH = 0.7, 0.03  # approximate slopes over log path of log size and of bits a weight


class Interval(NamedTuple):
    """Expected value and the ends of its 95 % interval."""

    low: float
    expected: float
    high: float


class ArtifactSize(NamedTuple):
    """Predicted bytes of an artifact."""

    bytes: Interval
    by_role: dict[str, float]  # expected bytes
    excess_share: float  # expected / simulated bytes - 1
    rms: dict[str, float]  # expected RMS of the weights by role


def artifact_size(cfg: Config, tensors: StoredTensors, steps: int, *, steps_log_sd: float = 0) -> ArtifactSize:
    """Predict the artifact of `cfg` trained for `steps`, whose logarithm has the standard deviation `steps_log_sd`."""
    sizes = weight_sizes(cfg, tensors, steps)
    if steps_log_sd:
        unsure = SIZE_BY_PATH * steps_log_sd
        sizes = {role: replace(size, log_sd=math.hypot(size.log_sd, unsure)) for role, size in sizes.items()}
    rms = {role: size.rms for role, size in sizes.items()}
    simulation = simulate(cfg, tensors, rms)
    excesses = role_excess(cfg, tensors, steps)
    weights = weights_by_role(tensors)
    by_role = dict(simulation.by_role)
    for role, excess in excesses.items():
        by_role[role] = max(by_role[role] + excess.bits * weights[role] / 8, 0.0)
    expected = simulation.container + sum(by_role.values())
    # What changes the excess of one role, such as a longer path, changes others too: errors are added, not squared.
    unsure = steps_log_sd * EXCESS_BY_PATH
    of_excess = sum(math.hypot(excess.sd, unsure) * weights[role] / 8 for role, excess in excesses.items())
    spread = math.hypot(of_excess, SIMULATION_ERROR[cfg.quant.codec] * expected)
    low, high = _size_effect(cfg, tensors, sizes, simulation)
    below, above = math.hypot(NORMAL_95 * spread, low), math.hypot(NORMAL_95 * spread, high)
    interval = Interval(max(expected - below, 0.0), expected, expected + above)
    return ArtifactSize(interval, by_role, expected / simulation.total - 1, rms)


def has_floor(quant: QuantConfig) -> bool:
    """Tell whether the codes of any tensor class depend on the size of its weights."""
    return any(scale_floor(how, quant) != "eps" for how in tensor_classes(quant).values())


def weight_sizes(cfg: Config, tensors: StoredTensors, steps: int) -> dict[str, WeightSize]:
    """Return the expected size of the weights, for each role that is stored as integers."""
    tech = frozenset(cfg.tech)
    return {
        role: expected_size(role, tensor.columns, path_length(cfg, role, steps), tech, walk_length(cfg, role, steps))
        for role, tensor in matrix_roles(tensors).items()
    }


def role_excess(cfg: Config, tensors: StoredTensors, steps: int) -> dict[str, ExcessBits]:
    """Return the expected excess of each role that is stored as integers."""
    excesses, tensors_of = {}, matrix_roles(tensors)
    for role, features in role_features(cfg, tensors, steps).items():
        how = tensor_classes(cfg.quant)[tensor_class(role)]
        trained = prior_of(role, how, cfg).expected(features)
        rounding = rounding_excess(role, how, cfg.quant, features.rows)
        rare = rare_rows_excess(role, how, cfg, steps * features.batch_tokens)
        one_step = one_step_excess(role, how, cfg, features.batch_tokens)
        scales = tuned_scales_excess(how, cfg.quant, tensors_of[role].columns)
        parts = (trained, rounding, rare, one_step, scales)
        excesses[role] = ExcessBits(sum(part.bits for part in parts), math.hypot(*(part.sd for part in parts)))
    return excesses


def role_features(cfg: Config, tensors: StoredTensors, steps: int) -> dict[str, Features]:
    """Return the features of a run for each role that is stored as integers."""
    batch = mean_batch_tokens(cfg)
    return {
        role: Features(path_length(cfg, role, steps), batch, tensor.shape[0], tensor.columns)
        for role, tensor in matrix_roles(tensors).items()
    }


def _size_effect(
    cfg: Config, tensors: StoredTensors, sizes: Mapping[str, WeightSize], simulation: Simulation
) -> tuple[float, float]:
    """Return how many bytes fewer and more are predicted at the lower and upper 95 % bounds of the weights' size."""
    if not has_floor(cfg.quant):
        return 0.0, 0.0
    ends = ({r: s.rms * math.exp(sign * NORMAL_95 * s.log_sd) for r, s in sizes.items()} for sign in (-1, 1))
    small, large = (simulate(cfg, tensors, rms).total for rms in ends)
    return simulation.total - small, large - simulation.total
