"""Hashed embedding of the last two (or three) tokens, added to the token embedding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from golf.errors import GolfError
from golf.registry import Variable
from golf.settings.config import Config
from golf.settings.fields import later, number, one_of
from golf.training.model.gpt import GPT
from golf.training.model.layers import CastedLinear, embed_dtype
from golf.training.techniques.base import Technique, technique

FACTORS = (36313, 27191, 51497)  # hash factors of the token, its predecessor, and the token before that
LINEAR_FACTOR = 92821  # factor of the predecessor in the linear hash
SCALE_INIT = 0.05
LINEAR_TABLE_STD = 0.01


def ngram_buckets(ids: Tensor, buckets: int, order: int = 2, bos_id: int | None = None) -> Tensor:
    """Return the bucket of every position of `ids` `[B, T]`. The first `order - 1` positions get the reserved last one.

    The hash is (36313·t XOR 27191·t₋₁ [XOR 51497·t₋₂]) mod (buckets - 1), exact in int64. With `bos_id` so do the first
    positions of every document.
    """
    hashed = ids * FACTORS[0]
    # `roll` wraps the row's end to its start, where the reserved bucket hides it.
    for back in range(1, order):
        hashed = hashed ^ (ids.roll(back, dims=1) * FACTORS[back])
    is_first = torch.arange(ids.size(1), device=ids.device) < order - 1
    if bos_id is not None:
        for back in range(order - 1):
            is_first = is_first | (ids.roll(back, dims=1) == bos_id)
    return torch.where(is_first, buckets - 1, hashed % (buckets - 1))


def linear_buckets(ids: Tensor, buckets: int, bos_id: int | None = None) -> Tensor:
    """Return the bucket (92821·t₋₁ + t) mod buckets of every position of `ids` `[B, T]`, with t₋₁ = 0 at the first.

    With `bos_id` it is 0 at the first of every document, too.
    """
    previous = torch.cat([torch.zeros_like(ids[:, :1]), ids[:, :-1]], dim=1)
    if bos_id is not None:
        previous = previous.masked_fill(ids == bos_id, 0)
    return (LINEAR_FACTOR * previous + ids) % buckets


class LinearHashEmbedding(nn.Module):
    """Table `[buckets, dim]` drawn from N(0, 0.01²) behind a projection to the model's width that starts at zero."""

    def __init__(self, buckets: int, dim: int, model_dim: int, bos_id: int | None = None):
        super().__init__()
        self.bos_id = bos_id
        self.embed = nn.Embedding(buckets, dim)
        nn.init.normal_(self.embed.weight, std=LINEAR_TABLE_STD)
        self.proj = CastedLinear(dim, model_dim, zero_init=True)

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        """Add the embedding of the pair that ends at each position to `x` `[B, T, d]`."""
        return x + self.proj(self.embed(linear_buckets(ids, self.embed.num_embeddings, self.bos_id)))


class NgramEmbedding(nn.Module):
    """Table `[buckets, dim]`, projected to the model's width and scaled by a learned factor.

    The table starts at zero and the projection does not: with both at zero no gradient would reach either.
    """

    def __init__(self, buckets: int, dim: int, model_dim: int, orders: Sequence[int], bos_id: int | None = None):
        super().__init__()
        self.orders, self.bos_id = orders, bos_id
        self.embed = nn.Embedding(buckets, dim)
        nn.init.zeros_(self.embed.weight)
        self.proj = CastedLinear(dim, model_dim) if dim != model_dim else None
        self.scale = nn.Parameter(torch.tensor(SCALE_INIT))

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        """Add the embeddings of the n-grams that end at each position to `x` `[B, T, d]`."""
        size = self.embed.num_embeddings
        first, *more = (self.embed(ngram_buckets(ids, size, order, self.bos_id)) for order in self.orders)
        term = sum(more, first)
        if self.proj is not None:
            term = self.proj(term)
        return x + term * self.scale.to(term.dtype)


def _trigram(value: str) -> dict[str, object]:
    return {"order": 2} if value in ("", "0", "0.0") else {"add_pairs": "true", "order": 3}


@technique("bigram")
@dataclass
class Bigram(Technique):
    """The main line's BigramHash, or the linear hash of two records of 2026-03-19 with `hash=linear`.

    `order=3` looks up three tokens in place of two. PR #609 (`TRIGRAM=1`) looks up both in one table and adds them,
    which is `order=3` with `add_pairs=true`. Public scripts with parameter banks leave the projection to Adam:
    `proj_optimizer=adam`.
    """

    source = "BigramHash of the public 11-layer records; trigram PR #609"
    variables = (
        Variable("BIGRAM_VOCAB_SIZE", "buckets", selects=True),
        Variable("BIGRAM_HASH_BUCKETS", lambda value: {"hash": "linear", "buckets": value}, selects=True),
        Variable("BIGRAM_BUCKETS", "buckets", selects=True),
        Variable("BIGRAM_DIM", "dim"),
        Variable("BIGRAM_HASH_DIM", "dim"),
        Variable("TRIGRAM", _trigram),
    )
    groups = (
        ("bigram.embed.weight", "embed"),
        ("bigram.proj.weight", "matrix"),
        ("bigram.scale", "scalar"),
    )

    buckets: int = number(2048, at_least=2)
    dim: int = number(128, at_least=1)
    order: int = number(2, at_least=2, at_most=3)
    add_pairs: bool = later(False)  # order=3: the pair's row is added to the triple's
    hash: str = later(one_of("xor", "linear"))  # linear: no scale, no reserved bucket, projection zero at the start
    proj_optimizer: str = later(one_of("muon", "adam"))  # optimizer of the projection
    mask_bos: bool = later(False)  # True: no n-gram reaches into the document before, unlike upstream
    bos_id: int = later(1)

    def check(self, cfg: Config) -> None:
        if self.hash == "linear" and self.order == 3:
            raise GolfError("tech.bigram.hash=linear hashes pairs: leave tech.bigram.order=2 with it.")
        if self.add_pairs and self.order == 2:
            raise GolfError("tech.bigram.add_pairs adds pairs to triples: set tech.bigram.order=3 with it.")

    def group_of(self, name: str) -> str | None:
        if self.proj_optimizer == "adam" and name == "bigram.proj.weight":
            return "scalar"
        return super().group_of(name)

    def separates_documents(self) -> bool:
        return self.mask_bos

    def edit_model(self, model: GPT, cfg: Config) -> None:
        bigram: nn.Module
        bos_id = self.bos_id if self.mask_bos else None
        if self.hash == "linear":
            bigram = LinearHashEmbedding(self.buckets, self.dim, cfg.model.model_dim, bos_id)
        else:
            orders = (3, 2) if self.add_pairs else (self.order,)
            bigram = NgramEmbedding(self.buckets, self.dim, cfg.model.model_dim, orders, bos_id)
        # In the token embedding's dtype, so that the sum of both keeps it.
        bigram.get_submodule("embed").to(embed_dtype(cfg.model.compute_dtype))
        model.bigram = bigram
        model.before_norm["add"].append(bigram)
