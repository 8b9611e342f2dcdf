"""Predicted effect of `quant.fit=cap`: the factor on the steps with which artifact and script fill the cap."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from golf.artifact.quant.fitting import ROOM_BYTES, with_steps
from golf.artifact.quant.formats import QMAX
from golf.plan.artifact_size import ArtifactSize, Interval
from golf.plan.tensors import StoredTensor
from golf.settings.config import Config


def filled(
    cfg: Config, tensors: Sequence[StoredTensor], code_bytes: int, predict: Callable[[Config], ArtifactSize]
) -> tuple[ArtifactSize, Interval]:
    """Return the size at the steps that fill the cap, and their factor with its 95 % interval.

    `predict` gives the size of a configuration. A factor of two is a bit a code, which a second prediction corrects.
    """
    room = cfg.budget.artifact_bytes - code_bytes
    target = room - ROOM_BYTES / 2
    # Doubling the steps takes about one bit off each code, which saves so many bytes.
    slope = sum(t.numel for t in tensors if t.format in QMAX and len(t.shape) == 2) / 8
    factor, size = 1.0, predict(cfg)
    for _ in range(2):
        factor *= 2.0 ** ((size.bytes.expected - target) / max(slope, 1.0))
        size = predict(dataclasses.replace(cfg, quant=with_steps(cfg.quant, factor)))
    ends = (factor * 2.0 ** ((stored - size.bytes.expected) / max(slope, 1.0)) for stored in size.bytes)
    return size._replace(bytes=Interval(room - ROOM_BYTES, target, room)), Interval(*ends)
