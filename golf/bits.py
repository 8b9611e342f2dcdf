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


def bits_per_byte(loss_nats: float, tokens: float, byte_count: float) -> float:
    """Mean loss in nats per token, turned into bits per byte of the text the tokens stand for."""
    return loss_nats / math.log(2) * tokens / byte_count


def nats_per_token(bpb: float, bytes_per_token: float) -> float:
    """Inverse of `bits_per_byte`, for a score or a difference of scores of one text under one tokenizer."""
    return bpb * math.log(2) * bytes_per_token
