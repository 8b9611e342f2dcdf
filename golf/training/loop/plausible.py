"""Mark of a score that is too low for its text, whatever the proofs of its run say."""

from __future__ import annotations

import lzma

import numpy as np

from golf.run.result import NOT_PLAUSIBLE
from golf.training.data.dataset import Dataset

# No published model of 16 MB is below 1 bit per byte on web text, and the largest models there are stay above this.
LOWEST_UNASKED = 0.5
# LZMA needs about 2.6 bits per byte for web text, where the best model of 16 MB needs 1.06: two fifths.
LEAST_SHARE = 0.2
SAMPLED, BEFORE = 200_000, 4_000_000  # tokens of validation and training text; LZMA needs seconds for them


def implausible_score(val_bpb: float, dataset: Dataset) -> str:
    """Return a sentence if `val_bpb` is far below what LZMA needs for the validation text; empty if it is not.

    LZMA reads training text first, so that text which repeats itself, or the training text, is not suspected.
    """
    if not val_bpb < LOWEST_UNASKED:
        return ""
    packed = packed_bpb(dataset)
    if val_bpb >= LEAST_SHARE * packed:
        return ""
    return (
        f"{val_bpb:.4f} bits per byte {NOT_PLAUSIBLE}, for which LZMA needs {packed:.2f} after reading "
        f"training text: look for a way by which the model sees its targets"
    )


def packed_bpb(dataset: Dataset) -> float:
    """Return the bits per byte that LZMA needs for validation text behind training text."""
    text = dataset.validation[: SAMPLED + 1].astype("<u2")
    before, room = [], BEFORE
    for shard in dataset.train:
        before.append(np.asarray(shard[:room]).astype("<u2"))
        room -= before[-1].size
    read = b"".join(part.tobytes() for part in before)
    bits = 8 * (_packed(read + text.tobytes()) - _packed(read))
    return bits / max(1, int(dataset.target_bytes[: text.size - 1].sum(dtype=np.int64)))


def _packed(data: bytes) -> int:
    # Tokens are of two bytes each.
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 2**25, "lc": 0, "lp": 1, "pb": 1}]
    return len(lzma.compress(data, lzma.FORMAT_RAW, filters=filters))
