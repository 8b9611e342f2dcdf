"""Bits per byte, the metric of the challenge, and the result of a scoring."""

from __future__ import annotations

import math
from dataclasses import dataclass

STANDARD = "standard"


@dataclass(frozen=True)
class Score:
    """A model's loss on the validation split."""

    val_loss: float  # nats per token
    val_bpb: float  # bits per byte
    tokens: int  # scored targets
    bytes: int  # UTF-8 bytes of these targets' text
    seconds: float  # duration of the scoring
    how: str = STANDARD  # method of scoring; only scores of one method are comparable


def bits_per_byte(loss_nats: float, tokens: float, byte_count: float) -> float:
    """Convert a mean loss in nats per token into bits per byte of the tokens' text."""
    # Per byte of text and not per token, so that models with different tokenizers compare.
    return loss_nats / math.log(2) * tokens / byte_count


def nats_per_token(bpb: float, bytes_per_token: float) -> float:
    """Convert bits per byte into nats per token, for a score or a difference of scores under one tokenizer."""
    return bpb * math.log(2) * bytes_per_token
