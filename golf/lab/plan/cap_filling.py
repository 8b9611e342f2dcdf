"""Predicted effect of what fills the cap: pruning by `quant.prune.to_fit`, and coarser steps by `quant.fit=cap`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from golf.artifact.quant.fitting import COARSEST, FINEST, room_bytes, with_steps
from golf.artifact.quant.formats import QMAX
from golf.artifact.quant.pruning import MARGIN_BYTES, Pruning
from golf.lab.plan.artifact_size import ArtifactSize, Interval
from golf.lab.plan.simulation import gaussian_codes
from golf.lab.plan.tensors import StoredTensors
from golf.settings.config import Config


def fitted(cfg: Config, tensors: StoredTensors, size: ArtifactSize, code_bytes: int) -> tuple[ArtifactSize, Interval]:
    """Return `size` after pruning to the cap beside a script of `code_bytes`, and the share of prunable codes it takes.

    The share is 1 if even all of them are not enough. The codes of Gaussian weights stand for those of trained ones.
    """
    target = cfg.budget.artifact_bytes - code_bytes - MARGIN_BYTES
    # int8 tensors are never pruned.
    names = [t.name for t in tensors if t.format in QMAX.keys() - {"int8"}]
    held = sum(size.by_role.get(role, 0.0) for role in {t.role for t in tensors if t.name in set(names)})
    gone, left = _entropy_left(cfg, tensors, names, size.rms)

    def after(stored: float) -> tuple[float, float]:
        if stored <= target:
            return stored, 0.0
        # Bytes are taken to shrink in proportion to the entropy of the codes.
        wanted = 1.0 - (stored - target) / max(held * stored / size.bytes.expected, 1.0)
        if wanted < left[-1]:
            return stored - held * (1.0 - left[-1]), 1.0
        # np.interp needs increasing positions, and the entropy left decreases.
        return float(target), float(np.interp(-wanted, -left, gone))

    ends = [after(stored) for stored in size.bytes]
    return size._replace(bytes=Interval(*(stored for stored, _ in ends))), Interval(*(share for _, share in ends))


def _entropy_left(
    cfg: Config, tensors: StoredTensors, names: Sequence[str], rms: Mapping[str, float]
) -> tuple[np.ndarray, np.ndarray]:
    """Return increasing shares of the prunable codes, and the share of the entropy that is left without them."""
    coded = gaussian_codes(cfg, [t for t in tensors if t.name in set(names)], rms)
    if not (pruning := Pruning(coded, list(coded))).most:
        return np.zeros(1), np.ones(1)
    counts, entropy = pruning.entropy_bytes()
    return counts / pruning.most, entropy / entropy[0]


def filled(
    cfg: Config, tensors: StoredTensors, code_bytes: int, predict: Callable[[Config], ArtifactSize]
) -> tuple[ArtifactSize, Interval]:
    """Return the size at the steps that fill the cap, and their factor with its 95 % interval.

    `predict` gives the size of a configuration. A factor of two is a bit a code, which a second prediction corrects.
    """
    room = cfg.budget.artifact_bytes - code_bytes
    target = room - room_bytes(room) / 2
    # Doubling the steps takes about one bit off each code, which saves so many bytes.
    slope = sum(t.numel for t in tensors if t.format in QMAX and len(t.shape) == 2) / 8

    def moved(octaves: float, stored: float) -> float:
        return min(max(octaves + (stored - target) / max(slope, 1.0), FINEST), COARSEST)

    octaves, size = 0.0, predict(cfg)
    for _ in range(2):
        octaves = moved(octaves, size.bytes.expected)
        size = predict(dataclasses.replace(cfg, quant=with_steps(cfg.quant, 2.0**octaves)))
    factor = Interval(*(2.0 ** moved(octaves, stored) for stored in size.bytes))
    # At an end of the dial the steps cannot follow the cap any further.
    if not FINEST < octaves < COARSEST:
        return size, factor
    return size._replace(bytes=Interval(room - room_bytes(room), target, room)), factor
