"""Predicted bytes of an artifact: a simulation, corrected by the excess bits of finished runs or of shipped priors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from golf.artifact.quant.policy import tensor_class
from golf.plan.excess_bits import ExcessBits, Features, Measured, distance, expected_excess, prior_of, rounding_excess
from golf.plan.history import FinishedRun
from golf.plan.simulation import Simulation, simulate
from golf.plan.tensors import StoredTensor, matrix_roles, stored_tensors, weights_by_role
from golf.plan.weight_size import SizeSample, WeightSize, expected_size, path_length
from golf.settings.config import Config, QuantConfig, scale_floor, tensor_classes
from golf.training.model.build import shapeless_model

NORMAL_95 = 1.96  # half-width of a two-sided 95 % interval, in standard deviations
# Relative standard deviation of simulated bytes, by codec: error of the sample for weights of the same distribution
SIMULATION_ERROR = {"context": 0.002, "zlib": 0.002, "zstd": 0.006, "lzma": 0.003, "brotli": 0.003}
MOST_COMPARED = 12  # finished runs whose excess bits are used
SIZE_NEIGHBOURS = 6  # finished runs whose weight sizes are used
MATRIX = "blocks.mlp.fc.weight"  # role whose path length selects them
SIZE_BY_PATH, EXCESS_BY_PATH = 0.7, 0.03  # approximate slopes over log path of log size and of bits a weight


class Interval(NamedTuple):
    """Expected value and the ends of its 95 % interval."""

    low: float
    expected: float
    high: float


class ArtifactSize(NamedTuple):
    """Predicted bytes of an artifact and the evidence behind them."""

    bytes: Interval
    by_role: dict[str, float]  # expected bytes
    excess_share: float  # expected / simulated bytes - 1
    compared: int  # finished runs behind the excess bits; 0 if they are shipped priors alone
    rms: dict[str, float]  # expected RMS of the weights by role
    sized: int  # finished runs behind the RMS


def artifact_size(
    cfg: Config,
    tensors: Sequence[StoredTensor],
    steps: int,
    history: Sequence[FinishedRun],
    *,
    thorough: bool = True,
    steps_log_sd: float = 0.0,
) -> ArtifactSize:
    """Predict the artifact of `cfg` trained for `steps`.

    `thorough` also learns from checkpoints in other number formats, which it stores again in those of `cfg`.
    `steps_log_sd` is the standard deviation of the logarithm of the steps.
    """
    sizes = weight_sizes(cfg, tensors, steps, history)
    if steps_log_sd:
        unsure = SIZE_BY_PATH * steps_log_sd
        sizes = {role: replace(size, log_sd=math.hypot(size.log_sd, unsure)) for role, size in sizes.items()}
    rms = {role: size.rms for role, size in sizes.items()}
    simulation = simulate(cfg, tensors, rms)
    excesses, compared = role_excess(cfg, tensors, steps, history, thorough)
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
    sized = min((size.runs for size in sizes.values()), default=0)
    interval = Interval(max(expected - below, 0.0), expected, expected + above)
    return ArtifactSize(interval, by_role, expected / simulation.total - 1, compared, rms, sized)


def has_floor(quant: QuantConfig) -> bool:
    """Tell whether the codes of any tensor class depend on the size of its weights."""
    return any(scale_floor(how, quant) != "eps" for how in tensor_classes(quant).values())


def weight_sizes(
    cfg: Config, tensors: Sequence[StoredTensor], steps: int, history: Sequence[FinishedRun]
) -> dict[str, WeightSize]:
    """Return the expected size of the weights, for each role that is stored as integers."""
    columns = {role: tensor.columns for role, tensor in matrix_roles(tensors).items()}
    tech = frozenset(cfg.tech)
    matrix_paths = {id(run): path_length(run.config, MATRIX, run.result.steps) for run in history}
    own = path_length(cfg, MATRIX, steps)
    # The size of trained weights follows the optimizer's path, so runs of a similar path tell most.
    near = sorted(history, key=lambda run: abs(math.log(matrix_paths[id(run)] / own)))[:SIZE_NEIGHBOURS]
    samples: dict[str, list[SizeSample]] = {role: [] for role in columns}
    for run in near:
        if measured := run.sizes():
            for role in columns.keys() & measured.keys():
                path = path_length(run.config, role, run.result.steps)
                samples[role].append(SizeSample(path, measured[role], frozenset(run.config.tech)))
    return {
        role: expected_size(role, columns[role], path_length(cfg, role, steps), tech, samples[role]) for role in columns
    }


def role_excess(
    cfg: Config, tensors: Sequence[StoredTensor], steps: int, history: Sequence[FinishedRun], thorough: bool
) -> tuple[dict[str, ExcessBits], int]:
    """Return the expected excess by role, and the number of finished runs behind it: those most similar to `cfg`."""
    own = role_features(cfg, tensors, steps)
    priors = {role: prior_of(role, tensor_classes(cfg.quant)[tensor_class(role)], cfg) for role in own}

    def rounding(role: str, features: Features) -> ExcessBits:
        return rounding_excess(role, tensor_classes(cfg.quant)[tensor_class(role)], cfg.quant, features.rows)

    evidence: dict[str, list[Measured]] = {role: [] for role in own}
    compared = 0
    for run, theirs in _nearest(own, [run for run in history if thorough or run.config.quant == cfg.quant]):
        measured = run.excess_bits(cfg.quant) or {}
        compared += bool(measured)
        for role in own.keys() & theirs.keys() & measured.keys():
            # Stored artifacts include what GPTQ adds. It is added to all roles below, so it is taken off here.
            added = rounding(role, theirs[role]).bits if run.was_stored_as(cfg.quant) else 0.0
            evidence[role].append(Measured(theirs[role], measured[role] - added))
    found = {role: expected_excess(priors[role], features, evidence[role]) for role, features in own.items()}
    total = {}
    for role, excess in found.items():
        of_rounding = rounding(role, own[role])
        total[role] = ExcessBits(excess.bits + of_rounding.bits, math.hypot(excess.sd, of_rounding.sd))
    return total, compared


def _nearest(
    own: Mapping[str, Features], history: Sequence[FinishedRun]
) -> list[tuple[FinishedRun, dict[str, Features]]]:
    """Return the finished runs whose roles are nearest to `own`, each with its features by role."""
    found: list[tuple[float, FinishedRun, dict[str, Features]]] = []
    for run in history:
        cfg = run.config
        theirs = role_features(cfg, stored_tensors(cfg, shapeless_model(cfg).state_dict()), run.result.steps)
        if shared := own.keys() & theirs.keys():
            found.append((sum(distance(own[r], theirs[r]) for r in shared) / len(shared), run, theirs))
    return [(run, theirs) for _, run, theirs in sorted(found, key=lambda entry: entry[0])[:MOST_COMPARED]]


def role_features(cfg: Config, tensors: Sequence[StoredTensor], steps: int) -> dict[str, Features]:
    """Return the features of a run for each role that is stored as integers."""
    tech, batch, tied = frozenset(cfg.tech), cfg.data.train_batch_tokens, cfg.model.tie_embeddings
    return {
        role: Features(path_length(cfg, role, steps), batch, tensor.shape[0], tensor.columns, tech, tied)
        for role, tensor in matrix_roles(tensors).items()
    }


def _size_effect(
    cfg: Config, tensors: Sequence[StoredTensor], sizes: Mapping[str, WeightSize], simulation: Simulation
) -> tuple[float, float]:
    """Return how many bytes fewer and more are predicted at the lower and upper 95 % bounds of the weights' size."""
    if not has_floor(cfg.quant):
        return 0.0, 0.0
    small, large = (
        simulate(cfg, tensors, {r: s.rms * math.exp(sign * NORMAL_95 * s.log_sd) for r, s in sizes.items()}).total
        for sign in (-1, 1)
    )
    return simulation.total - small, large - simulation.total
