"""Bits per byte, the one number of the game, and the record of a scoring."""

from __future__ import annotations

import math
from dataclasses import dataclass

STANDARD = "standard"


@dataclass(frozen=True)
class Score:
    """A model's loss on the validation split."""

    val_loss: float  # nats per token
    val_bpb: float  # bits per byte
    tokens: int  # targets scored
    bytes: int  # UTF-8 bytes those targets stand for
    seconds: float
    how: str = STANDARD  # scores that were not taken alike must not be subtracted from each other


def bits_per_byte(loss_nats: float, tokens: int, byte_count: int) -> float:
    """Mean loss in nats per token, turned into bits per byte of the text the tokens stand for."""
    return loss_nats / math.log(2) * tokens / byte_count
