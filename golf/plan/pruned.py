"""Predicted effect of `quant.prune.to_fit`: the artifact's bytes after pruning and the share of codes set to zero."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from golf.artifact.quant.formats import QMAX
from golf.artifact.quant.pruning import Pruning
from golf.plan.artifact_size import ArtifactSize, Interval
from golf.plan.simulation import gaussian_codes
from golf.plan.tensors import StoredTensor
from golf.settings.config import Config


class Pruned(NamedTuple):
    """Share of the prunable codes that pruning sets to zero; 1 if even all of them are not enough."""

    low: float
    expected: float
    high: float


def fitted(
    cfg: Config, tensors: Sequence[StoredTensor], size: ArtifactSize, code_bytes: int
) -> tuple[ArtifactSize, Pruned]:
    """Return `size` after pruning to the cap and the share of codes that it takes, with `code_bytes` for the script.

    The codes of Gaussian weights stand for those of trained ones.
    """
    target = cfg.budget.artifact_bytes - code_bytes - cfg.quant.prune.margin_bytes
    # int8 tensors are never pruned.
    names = [t.name for t in tensors if t.format in QMAX.keys() - {"int8"}]
    roles = {t.role for t in tensors if t.name in set(names)}
    held = sum(size.by_role.get(role, 0.0) for role in roles)
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
    fitting = size._replace(bytes=Interval(*(stored for stored, _ in ends)))
    return fitting, Pruned(*(share for _, share in ends))


def _entropy_left(
    cfg: Config, tensors: Sequence[StoredTensor], names: Sequence[str], rms: Mapping[str, float]
) -> tuple[np.ndarray, np.ndarray]:
    """Return increasing shares of the prunable codes, and the share of the entropy that is left without them."""
    coded = gaussian_codes(cfg, [t for t in tensors if t.name in set(names)], rms)
    pruning = Pruning(coded, list(coded), cfg.quant.prune.codes)
    if not pruning.most:
        return np.zeros(1), np.ones(1)
    counts, entropy = pruning.entropy_bytes()
    return counts / pruning.most, entropy / entropy[0]
