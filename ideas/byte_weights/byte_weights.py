"""Byte weights: tokens that stand for more bytes count more in training, up to a cap."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import sentencepiece
import torch
from torch import Tensor, nn

from golf.errors import GolfError
from golf.paths import resolve
from golf.run.progress import Progress
from golf.settings.config import Config
from golf.settings.fields import number
from golf.training.data.byte_tables import ByteTables, byte_tables
from golf.training.model.gpt import GPT
from golf.training.model.objective import Pass, Weigh
from golf.training.techniques.base import CHANGES_LOSS, Technique, technique

MADE_UP = 7  # different numbers of bytes of tokens whose tokenizer is not here


def tables_of(cfg: Config) -> ByteTables:
    """Return the bytes of the tokenizer's tokens, and made-up ones if it is not here or has another vocabulary.

    A run refuses such a tokenizer, but plans and tests build models without any.
    """
    path, size = resolve(cfg.data.tokenizer_path), cfg.model.vocab_size
    if path.is_file():
        tokenizer = sentencepiece.SentencePieceProcessor(model_proto=path.read_bytes())
        if tokenizer.vocab_size() == size:
            return byte_tables(tokenizer, size)
    none = np.zeros(size, dtype=bool)
    return ByteTables((1 + np.arange(size) % MADE_UP).astype(np.int16), none, none)


class TokenBytes(nn.Module):
    """The bytes of targets as buffers, which no optimizer, checkpoint or artifact has."""

    base_bytes: Tensor
    leading_space: Tensor
    boundary: Tensor

    def __init__(self, tables: ByteTables, device: torch.device):
        super().__init__()
        self.tables = tables
        for name, values in vars(tables).items():
            self.register_buffer(name, torch.as_tensor(values, device=device), persistent=False)

    def fill(self) -> None:
        """Write the tables into the buffers."""
        for name, values in vars(self.tables).items():
            self.get_buffer(name).copy_(torch.from_numpy(values))

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        """Return the bytes `[B, T]` int16 of `targets` behind the tokens `ids`, as scores count them."""
        return self.base_bytes[targets] + (self.leading_space[targets] & ~self.boundary[ids])


def tempered_bytes(done: Pass, *, alpha: float, cap: int) -> Tensor:
    """Return min(bytes, cap)^alpha `[B, T]` float32, of the bytes that each target stands for."""
    count = done.model.training_only["byte_weights"](done.ids, done.targets)
    # A document's start has no bytes, but its nats are in the score.
    return count.clamp(min=1, max=cap).float().pow(alpha)


@technique("byte_weights")
@dataclass
class ByteWeights(Technique):
    """Alpha 1 without a cap would minimise the bits per byte of a batch, alpha 0 is the plain mean over tokens."""

    source = "PR #1702, PR #1519"
    effect = CHANGES_LOSS
    conflicts = ("focal_loss",)

    alpha: float = number(0.5, above=0)  # exponent of a token's bytes
    cap: int = number(8, at_least=2)  # most bytes that count

    def check(self, cfg: Config) -> None:
        """Refuse text whose pieces do not tell the bytes, and text as bytes."""
        if cfg.data.units == "bytes":
            raise GolfError("tech.byte_weights is for tokens of several bytes, and data.units=bytes has none: drop it.")
        if cfg.data.byte_sidecar:
            raise GolfError(
                "tech.byte_weights counts the bytes of pieces, which data.byte_sidecar=true says are not the text's: "
                "drop byte_weights, or choose other data."
            )

    def edit_model(self, model: GPT, cfg: Config) -> None:
        """Add the tokens' bytes beside the model."""
        model.training_only["byte_weights"] = TokenBytes(tables_of(cfg), model.tok_emb.weight.device)

    def before_step(self, model: GPT, progress: Progress) -> None:
        """Write the tokens' bytes again: the proofs before the clock put random numbers into all buffers."""
        model.training_only["byte_weights"].fill()

    def token_weights(self, cfg: Config) -> Weigh:
        """Return the function of the weights. The loss divides by their sum, so that their mean is one."""
        return partial(tempered_bytes, alpha=self.alpha, cap=self.cap)
