"""Hashed embedding of the last two (or three) tokens, added to the token embedding."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from golf.errors import GolfError
from golf.settings.config import Config
from golf.training.model.gpt import GPT
from golf.training.model.layers import CastedLinear, embed_dtype
from golf.training.techniques.base import Technique, technique

FACTORS = (36313, 27191, 51497)  # hash factors of the token, its predecessor, and the token before that
SCALE_INIT = 0.05


def ngram_buckets(ids: Tensor, buckets: int, order: int = 2) -> Tensor:
    """Return the bucket of every position of `ids` `[B, T]`. The first `order - 1` positions get the reserved last one.

    The hash is (36313·t XOR 27191·t₋₁ [XOR 51497·t₋₂]) mod (buckets - 1), exact in int64.
    """
    hashed = ids * FACTORS[0]
    for back in range(1, order):
        hashed = hashed ^ (ids.roll(back, dims=1) * FACTORS[back])
    position = torch.arange(ids.size(1), device=ids.device)
    return torch.where(position < order - 1, buckets - 1, hashed % (buckets - 1))


class NgramEmbedding(nn.Module):
    """Table `[buckets, dim]`, projected to the model's width and scaled by a learned factor.

    The table starts at zero and the projection does not: with both at zero no gradient would reach either.
    """

    def __init__(self, buckets: int, dim: int, model_dim: int, order: int):
        super().__init__()
        self.order = order
        self.embed = nn.Embedding(buckets, dim)
        nn.init.zeros_(self.embed.weight)
        self.proj = CastedLinear(dim, model_dim) if dim != model_dim else None
        self.scale = nn.Parameter(torch.tensor(SCALE_INIT))

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        """Add the embedding of the n-gram that ends at each position to `x` `[B, T, d]`."""
        term = self.embed(ngram_buckets(ids, self.embed.num_embeddings, self.order))
        if self.proj is not None:
            term = self.proj(term)
        return x + term * self.scale.to(term.dtype)


@technique("bigram")
@dataclass
class Bigram(Technique):
    """The main line's BigramHash; `order=3` hashes three tokens into the same table."""

    source = "BigramHash of the public 11-layer records; trigram PR #609"
    groups = (
        ("bigram.embed.weight", "embed"),
        ("bigram.proj.weight", "matrix"),
        ("bigram.scale", "scalar"),
    )

    buckets: int = 2048
    dim: int = 128
    order: int = 2

    def check(self, cfg: Config) -> None:
        if self.buckets < 2 or self.dim < 1 or self.order not in (2, 3):
            raise GolfError("tech.bigram needs buckets of at least 2, dim of at least 1, and order 2 or 3.")

    def edit_model(self, model: GPT, cfg: Config) -> None:
        bigram = NgramEmbedding(self.buckets, self.dim, cfg.model.model_dim, self.order)
        bigram.embed.to(embed_dtype(cfg.model.compute_dtype))
        model.bigram = bigram
        model.before_norm.append(bigram)
