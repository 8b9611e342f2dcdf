"""H-Net, one stage: a router cuts each row into chunks, and the inner layers run on one vector a chunk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from golf.errors import GolfError
from golf.settings.config import Config
from golf.settings.fields import number
from golf.training.data.documents import BOS_ID
from golf.training.data.packed import most_pieces
from golf.training.model.documents import PIECES, TABLE, starts_of
from golf.training.model.gpt import GPT, State, Stream
from golf.training.model.layers import CastedLinear, Context, rms_norm
from golf.training.model.route import Routes, Visit, route_through
from golf.training.model.slots import set_slot
from golf.training.techniques.base import Technique, technique

PROBABILITY = "hnet.probability"  # name in `Context.shared` of the boundaries' probabilities [B, T]
REACH = 64  # chunks back from which the rest weighs less than 2⁻⁶⁴


def begins_of(starts: Tensor) -> Tensor:
    """Return bool `[B, T]`: tokens that begin a row or a piece, for `starts_of`'s `[B, T]`."""
    begins = torch.ones_like(starts, dtype=torch.bool)
    begins[:, 1:] = starts[:, 1:] != starts[:, :-1]
    return begins


def boundary_probabilities(q: Tensor, k: Tensor, begins: Tensor) -> Tensor:
    """Return p_t = (1 − cos(q_t, k_{t−1})) / 2 `[B, T]` for `q` and `k` `[B, T, d]`, and 1 where `begins`."""
    # The first token of a row, which has no token before it, is compared with itself. Its result is not read.
    before = torch.cat((k[:, :1], k[:, :-1]), 1)
    return torch.where(begins, 1.0, 0.5 - 0.5 * F.cosine_similarity(q, before, dim=-1))


def within_cap(wanted: Tensor, begins: Tensor, cap: int) -> Tensor:
    """Return bool `[B, T]`: the `wanted` boundaries for which there is room.

    The first n + 1 tokens of a piece have room for 1 + ⌊n / cap⌋ chunks. What does not fit stays in the chunk before
    it. The room depends on the place alone, so that neither later tokens nor the length of the row decide.
    """
    tokens = begins.size(1)
    place = torch.arange(tokens, device=begins.device)
    start = torch.where(begins, place, 0).cummax(1).values
    total = wanted.long().cumsum(1)
    # Boundaries of the piece so far. Each token before the piece is in both sums.
    count = total - total.gather(1, start) + 1
    room = 1 + (place - start) // cap
    # With count c and room r there are a_t = min(a_{t−1} + c_t − c_{t−1}, r_t) = c_t + min_{s≤t}(r_s − c_s).
    # At its beginning a piece has r = c, so that the minimum is not above zero. Subtracting more with every piece lets
    # the minimum begin anew there.
    piece = 2 * tokens * begins.long().cumsum(1)
    spare = (room - count - piece).cummin(1).values + piece
    chunks = count + spare
    # A boundary is where the number of chunks rises, or begins anew.
    return begins | (F.pad(chunks[:, 1:] > chunks[:, :-1], (1, 0)))


def smoothed(values: Tensor, p: Tensor) -> Tensor:
    """Return e_c = p_c v_c + (1 − p_c) e_{c−1} `[B, M, d]` for `values` v and `p` `[B, M]`, each at least 1/2.

    Each round doubles the number of chunks that a sum reaches back.
    """
    kept, reach = (1 - p)[..., None], 1
    e = p[..., None] * values
    while reach < min(REACH, values.size(1)):
        e = e + kept * F.pad(e, (0, 0, reach, 0))[:, :-reach]
        kept = kept * F.pad(kept, (0, 0, reach, 0))[:, :-reach]
        reach *= 2
    return e


def taken(rows: Tensor, places: Tensor) -> Tensor:
    """Return `rows` `[B, n, d]` at `places` `[B, m]`, `[B, m, d]`."""
    return rows.gather(1, places[..., None].expand(-1, -1, rows.size(-1)))


class Chunked(NamedTuple):
    """The stream between encoder and decoder."""

    main: Tensor  # [B, M, d], a vector a chunk, and zeros at first behind the last chunk of a row
    inner: Context  # of the inner layers: that of rows of chunks
    encoded: Tensor  # [B, T, d], the normalised output of the encoder
    opens: Tensor  # [B, T], tokens that begin a chunk
    chunk: Tensor  # [B, T], number of the chunk that a token is in
    p: Tensor  # [B, T], probability of a boundary
    first: Tensor  # [B, M], the first token of every chunk


class Router(nn.Module):
    """The maps of the router and of the residual. Queries and keys start as the encoder's output."""

    def __init__(self, dim: int):
        super().__init__()
        self.c_q, self.c_k = CastedLinear(dim, dim), CastedLinear(dim, dim)
        for layer in (self.c_q, self.c_k):
            layer.weight.data.copy_(torch.eye(dim))
        self.residual = CastedLinear(dim, dim, zero_init=True)


@dataclass(frozen=True)
class ChunkStream(Stream):
    """Tokens up to layer `first`, chunks from there on, tokens again from layer `last` on."""

    first: int
    last: int
    cap: int

    def visit(self, model: GPT, x: State, skip: State | None, context: Context) -> State:
        visit = context.visit
        if visit.block == self.first:
            x = self.cut(model, x, context)
        if visit.block == self.last:
            x = self.joined(model, x, context)
        if not isinstance(x, Chunked):
            return super().visit(model, x, skip, context)
        before = None if skip is None else skip.main
        return x._replace(main=super().visit(model, x.main, before, x.inner._replace(visit=visit)))

    def slots(self, model: GPT, context: Context) -> int:
        """Return the number M of chunks that every row has a place for."""
        tokens = context.ids.size(1)
        pieces = most_pieces(tokens, model.piece_tokens) if PIECES in context.shared else 1
        # The first token of each piece begins a chunk, and at most every cap-th of the others.
        return min(tokens, pieces + (tokens - pieces) // self.cap) if pieces < tokens else tokens

    def cut(self, model: GPT, x: Tensor, context: Context) -> Chunked:
        """Return the chunks of the encoder's output `x` `[B, T, d]`, and leave p for the training loss."""
        router, slots, h = model.hnet, self.slots(model, context), rms_norm(x)
        # bf16 has too few digits for a cosine near the threshold.
        wide = torch.promote_types(x.dtype, torch.float32)
        begins = begins_of(starts_of(context))
        q, k = (layer(h, context.active).to(wide) for layer in (router.c_q, router.c_k))
        p = boundary_probabilities(q, k, begins)
        context.shared[PROBABILITY] = p
        opens = within_cap(p >= 0.5, begins, self.cap)
        chunk = opens.long().cumsum(1) - 1
        place = torch.arange(x.size(1), device=x.device).expand_as(chunk)
        # Tokens within a chunk write into a place behind the last one, which is cut off.
        first = torch.zeros_like(chunk[:, :1]).expand(-1, slots + 1)
        first = first.scatter(1, torch.where(opens, chunk, slots).clamp(max=slots), place)[:, :slots]
        filled = torch.arange(slots, device=x.device) <= chunk[:, -1:]
        # What begins a piece of tokens begins one of chunks: their ids say so to the functions that look for it.
        ids = torch.where(filled, torch.where(begins, BOS_ID, 0).gather(1, first), 0)
        main = taken(h, first) * filled[..., None]
        shared = {name: model.shared_terms[name](ids) for name in (PIECES, TABLE) if name in context.shared}
        cos, sin = model.turns(model, ids, main)
        inner = context._replace(ids=ids, x0=main, cos=cos, sin=sin, shared=shared)
        return Chunked(main, inner, h, opens, chunk, p, first)

    def joined(self, model: GPT, x: Chunked, context: Context) -> Tensor:
        """Return the decoder's input `[B, T, d]`: every token's smoothed chunk, and W_r times the encoder's output."""
        e = smoothed(rms_norm(x.main).to(x.p.dtype), x.p.gather(1, x.first))
        z = taken(e, x.chunk.clamp(max=e.size(1) - 1))
        confidence = torch.where(x.opens, x.p, 1 - x.p)
        # The factor is one. Its gradient is the confidence's (a straight-through estimator).
        z = z * (1 + (confidence - confidence.detach()))[..., None]
        # A row of more pieces than there are places for would lose chunks: nothing may come of it.
        lost = (x.chunk[:, -1:] >= e.size(1))[..., None]
        return z.to(x.encoded.dtype).masked_fill(lost, float("nan")) + model.hnet.residual(x.encoded, context.active)


@technique("hnet")
@dataclass
class HNet(Technique):
    """The first `encoder_layers` and the last `decoder_layers` run on tokens, those between on chunks. U-net skips
    join inner layers alone. `chunk_ratio` is the loss that keeps the chunks near a length.
    """

    source = "H-Net, arXiv 2507.07955; PR #1104, #1305"
    # An order and a stream of their own; vectors of tokens for layers that run on chunks.
    conflicts = ("recurrence", "parallel_lanes", "value_embed", "value_residual")
    groups = (("hnet.*.weight", "matrix"),)

    encoder_layers: int = number(1, at_least=1)
    decoder_layers: int = number(1, at_least=1)
    cap: int = number(2, at_least=1)  # tokens for each chunk that there is room for; 1 = no cap

    def check(self, cfg: Config) -> None:
        """Refuse a model without inner layers."""
        outer = self.encoder_layers + self.decoder_layers
        if outer >= cfg.model.num_layers:
            raise GolfError(
                f"tech.hnet has {outer} layers of encoder and decoder, and model.num_layers={cfg.model.num_layers} "
                "leaves none between them: lower tech.hnet.encoder_layers or tech.hnet.decoder_layers."
            )

    def routes(self, cfg: Config) -> Routes:
        """Return the layers in order, with skips between the inner ones."""
        last, layers = cfg.model.num_layers - self.decoder_layers, range(cfg.model.num_layers)
        inner = [
            visit._replace(joins=None if visit.joins is None else visit.joins + self.encoder_layers)
            for visit in route_through(layers[self.encoder_layers : last], skips=cfg.model.unet_skips)
        ]
        outer = [Visit(layer) for layer in layers]
        return Routes((*outer[: self.encoder_layers], *inner, *outer[last:]), {})

    def edit_model(self, model: GPT, cfg: Config) -> None:
        """Add the router, and let the stream become chunks and tokens again."""
        model.hnet = Router(cfg.model.model_dim)
        last = cfg.model.num_layers - self.decoder_layers
        set_slot(model, "stream", ChunkStream(self.encoder_layers, last, self.cap), self.name)
