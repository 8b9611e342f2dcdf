"""The dial of `quant.fit=cap`: one factor on the steps of all matrices, with which artifact and script fill the cap.

Scales that a tuning changed take bytes, too: those that moved least are put back until the file fits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from golf.artifact.quant.formats import QMAX, CodedTensor, CodedTensors, Tech, Tensors
from golf.artifact.quant.policy import storage_of
from golf.settings.config import QuantConfig, tensor_classes

MOST_PACKS = 8
ROOM_BYTES = 2000  # the search stops once the file is this close below the target, or closer where that is small
ROOM_SHARE = 0.002  # of a target; less than `ROOM_BYTES` below a megabyte
FINEST, COARSEST = -2.0, 3.0  # octaves of the factor that are tried


def room_bytes(target_bytes: int) -> float:
    """Return how many bytes below `target_bytes` the search may end."""
    return min(ROOM_BYTES, ROOM_SHARE * target_bytes)


def with_steps(quant: QuantConfig, factor: float) -> QuantConfig:
    """Return `quant` with steps `factor` times as large, for tensors whose clip is a number of deviations."""
    classes: Any = {n: dataclasses.replace(how, clip_k=how.clip_k * factor) for n, how in tensor_classes(quant).items()}
    by_name = {
        # A rule without clip_k takes its class's.
        pattern: {**rule, "clip_k": rule["clip_k"] * factor} if isinstance(rule, dict) and "clip_k" in rule else rule
        for pattern, rule in quant.by_name.items()
    }
    return dataclasses.replace(quant, by_name=by_name, **classes)


def octave_bytes(weights: Tensors, quant: QuantConfig, tech: Tech) -> float:
    """Return the bytes that twice the step saves: a bit for each code of the matrices."""
    return sum(w.numel() for w in _matrices(weights, quant, tech)) / 8


def tuned_scale_bytes(weights: Tensors, quant: QuantConfig, tech: Tech) -> int:
    """Return bytes that are left free for scales that a tuning makes differ: one for each row of the matrices."""
    # Files need 0.7 to 0.8 a row (docs/studies/bytes.md). With less, the packs of `fitting_scales` take training time.
    return sum(w.size(0) for w in _matrices(weights, quant, tech))


def fitting_scales(before: CodedTensors, tuned: CodedTensors, fits: Callable[[CodedTensors], bool]) -> CodedTensors:
    """Return `tuned` if it fits, else with the scales of as few tensors as needed as they were `before`.

    Scales that moved least are put back first. Returns `before` if that is not enough.
    """
    if fits(tuned):
        return tuned
    moved = {name: _moved(before[name], tensor) for name, tensor in tuned.items() if tensor.scale is not None}
    order = sorted((name for name, by in moved.items() if by > 0), key=lambda name: moved[name])

    def back(count: int) -> CodedTensors:
        put = {name: dataclasses.replace(tuned[name], scale=before[name].scale) for name in order[:count]}
        return {**tuned, **put}

    too_few, enough = 0, len(order)
    if not fits(back(enough)):
        return before
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        too_few, enough = (too_few, middle) if fits(back(middle)) else (middle, enough)
    return back(enough)


def _moved(before: CodedTensor, after: CodedTensor) -> float:
    """Return the root mean square of the relative change of a tensor's scales."""
    assert before.scale is not None and after.scale is not None
    return float((after.scale.float() / before.scale.float()).log().square().mean().sqrt())


def _matrices(weights: Tensors, quant: QuantConfig, tech: Tech) -> list[Tensor]:
    return [w for name, w in weights.items() if w.ndim == 2 and storage_of(name, w, quant, tech).format in QMAX]


def fitting_factor(packed_bytes: Callable[[float], int], target_bytes: int, slope: float) -> float | None:
    """Return the factor on the steps with the largest `packed_bytes` found that are at most `target_bytes`.

    `slope` are the bytes of an octave, for the first guess; later ones interpolate. Packing is slow, so at most
    `MOST_PACKS` are made. Returns None if none of them fits.
    """
    sizes: dict[float, int] = {}
    octaves = 0.0
    # At either end of the range the guess repeats itself, and so would its size.
    while len(sizes) < MOST_PACKS and octaves not in sizes:
        size = sizes[octaves] = packed_bytes(2.0**octaves)
        if target_bytes - room_bytes(target_bytes) <= size <= target_bytes:
            break
        octaves = _next(sizes, target_bytes, slope)
    fits = [octaves for octaves, size in sizes.items() if size <= target_bytes]
    return 2.0 ** max(fits, key=lambda octaves: sizes[octaves]) if fits else None


def _next(sizes: Mapping[float, int], target_bytes: int, slope: float) -> float:
    """Return the octaves to try after those in `sizes`."""
    # The middle of the accepted range leaves room for error on both sides.
    wanted = target_bytes - room_bytes(target_bytes) / 2
    over = max((o for o, size in sizes.items() if size > target_bytes), default=None)
    fits = min((o for o, size in sizes.items() if size <= target_bytes), default=None)
    # Between two sizes the next one is interpolated. Before there are two, the slope has to do.
    if over is None or fits is None or sizes[over] == sizes[fits]:
        (at, size) = min(sizes.items(), key=lambda item: abs(item[1] - wanted))
        # Codes cost less than a bit an octave where many are zero: the second guess goes further.
        return min(max(at + len(sizes) * (size - wanted) / slope, FINEST), COARSEST)
    share = (sizes[over] - wanted) / (sizes[over] - sizes[fits])
    # The guess stays off both ends, which have been packed already.
    return over + min(max(share, 0.02), 0.98) * (fits - over)
