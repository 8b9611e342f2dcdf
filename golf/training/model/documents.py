"""Attention within documents: it stops at a document's end, and rotary positions restart with every document.

A document begins at a BOS token or a row's start. One that is longer than `longest` tokens is cut into pieces of that
length, which do not see each other. The ids alone tell which piece a token belongs to, so that rows of packed documents
and plain sequences run through the same model. Source: openai/parameter-golf record 2026-04-10.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from golf.settings.config import ModelConfig
from golf.training.data.documents import BOS_ID
from golf.training.data.packed import most_pieces
from golf.training.model.attention import (
    TRIED_SHAPE,
    Attend,
    CausalSelfAttention,
    attend_to_all,
    kernel,
    try_kernel,
    variable_length_kernel,
)
from golf.training.model.gpt import GPT, turn_from_row_start
from golf.training.model.layers import Context

# Names in `Context.shared` of what `piece_starts` returns, and of what `PieceAttention.pieces` does.
PIECES, TABLE = "documents.pieces", "documents.table"
SCANNED = 256  # numbers that a block of a GPU scans


def piece_starts(ids: Tensor, longest: int) -> Tensor:
    """Return for every token of `ids` `[B, T]` the index of its piece's first token in the flat row, int64 `[B·T]`."""
    place = torch.arange(ids.numel(), device=ids.device)
    # Rows are laid end to end, so each row's start has to end the document before it.
    begins = (ids.flatten() == BOS_ID) | (place % ids.size(1) == 0)
    # The running maximum carries the latest beginning on to the tokens behind it.
    document = running(torch.where(begins, place, 0), _cummax, torch.maximum)
    return running(torch.where((place - document) % longest == 0, place, 0), _cummax, torch.maximum)


def running(values: Tensor, scan: Callable[[Tensor, int], Tensor], join: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Return the running sums or maxima of `values` `[n]`, at least zero, by many short scans and one over their ends.

    A scan of one long row would keep a single block of a GPU busy.
    """
    rows = scan(F.pad(values, (0, -values.numel() % SCANNED)).view(-1, SCANNED), 1)
    return join(rows, F.pad(scan(rows[:-1, -1], 0), (1, 0))[:, None]).flatten()[: values.numel()]


def _cummax(values: Tensor, dim: int) -> Tensor:
    return values.cummax(dim).values


def starts_of(context: Context) -> Tensor:
    """Return for every token of a pass the first one that may act on it, int64 `[B, T]`: equal within a piece, or row.

    Without `model.within_documents` documents act on each other, and all tokens of a row are equal.
    """
    starts = context.shared.get(PIECES)
    return torch.zeros_like(context.ids) if starts is None else starts.view_as(context.ids)


def short_convolution(x: Tensor, filters: Tensor, starts: Tensor) -> Tensor:
    """Return Σ_i f_i ⊙ x_{t−i} `[B, T, c]` over tokens of one piece, for `filters` f `[taps, c]` and `starts_of`'s."""
    tokens, filters = x.size(1), filters.to(x.dtype)
    y = x * filters[0]
    for i in range(1, len(filters)):
        # Padding is no start, so that nothing comes from before the row.
        same = F.pad(starts, (i, 0), value=-1)[:, :tokens] == starts
        y = torch.addcmul(y, F.pad(x, (0, 0, i, 0))[:, :tokens] * same[..., None], filters[i])
    return y


class PieceAttention:
    """Attention within pieces of at most a number of tokens, by the kernel behind `model.attention`."""

    def __init__(self, cfg: ModelConfig):
        self.flash, self.attend = variable_length_kernel(cfg), kernel(cfg)

    def pieces(self, ids: Tensor, longest: int) -> Tensor:
        """Return what `__call__` wants to know of `ids` `[B, T]`: the table of a kernel, or every token's start."""
        starts = piece_starts(ids, longest)
        return cumulative_lengths(starts, most_pieces(starts.numel(), longest)) if self.flash else starts

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, pieces: Tensor, longest: int) -> Tensor:
        """Compute attention for `q` `[B, T, H, D]`, `k` and `v` `[B, T, K, D]`."""
        shape = q.shape
        # All rows become one, which is safe because a piece never crosses a row's start.
        q, k, v = (t.reshape(1, -1, *t.shape[2:]) for t in (q, k, v))
        if self.flash:
            return self.flash(q[0], k[0], v[0], pieces, longest).view(shape)
        return attend_plainly(self.attend, q, k, v, pieces, longest).view(shape)


def try_documents(device: torch.device, cfg: ModelConfig) -> None:
    """Run attention within two documents as `try_kernel` runs it over a row. Raises `GolfError` if that fails."""
    attend, ids = PieceAttention(cfg), torch.zeros(TRIED_SHAPE, dtype=torch.int64, device=device)
    longest = ids.size(1) // 2
    try_kernel(device, cfg, lambda q, k, v: attend(q, k, v, attend.pieces(ids, longest), longest))


def separate_documents(model: GPT, longest: int) -> None:
    """Edit `model` so that attention stays within pieces of at most `longest` tokens.

    `model.piece_tokens` holds that length, which a stage of the training may change. A technique that mixes tokens by
    a `core` of its own, or in place of attention, asks `starts_of`.
    """
    model.piece_tokens = longest
    attend = PieceAttention(model.cfg)

    def within_pieces(attn: CausalSelfAttention, q: Tensor, k: Tensor, v: Tensor, context: Context) -> Tensor:
        return attend(q, k, v, context.shared[TABLE], model.piece_tokens)

    def turn_from_starts(model: GPT, ids: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        starts, place = piece_starts(ids, model.piece_tokens), torch.arange(ids.numel(), device=ids.device)
        tables = [table[0, place - starts] for table in model.rotary.tables(model.piece_tokens, like=like)]
        if attend.flash:
            # More pieces than the list of lengths holds would be attended to wrongly: nothing may come of it.
            too_many = (starts == place).sum() > most_pieces(ids.numel(), model.piece_tokens)
            tables = [table.masked_fill(too_many, float("nan")) for table in tables]
        cos, sin = (table.view(*ids.shape, 1, -1) for table in tables)
        return cos, sin

    model.shared_terms[PIECES] = lambda ids: piece_starts(ids, model.piece_tokens)
    model.shared_terms[TABLE] = lambda ids: attend.pieces(ids, model.piece_tokens)
    # What a technique has put in the place of either stays.
    replaced = (attend_to_all, turn_from_row_start, *model.separators)
    model.separators = (within_pieces, turn_from_starts)
    if model.turns in replaced:
        model.turns = turn_from_starts
    # A technique may have taken the attention out of a block.
    for attn in filter(None, (getattr(block, "attn", None) for block in model.blocks)):
        if getattr(attn, "core", None) in replaced:
            attn.core = within_pieces


@contextlib.contextmanager
def across_documents(model: GPT) -> Iterator[None]:
    """Let the attention of `model` reach over whole rows in the block, for rows that hold one document each."""
    # What a technique has put in the place of either stays.
    attentions: list[Any] = [m for m in model.modules() if getattr(m, "core", None) in model.separators]
    saved = model.turns, model.shared_terms, [attn.core for attn in attentions]
    if model.turns in model.separators:
        model.turns = turn_from_row_start
    model.shared_terms = {name: term for name, term in model.shared_terms.items() if name not in (PIECES, TABLE)}
    for attn in attentions:
        attn.core = attend_to_all
    try:
        yield
    finally:
        model.turns, model.shared_terms, cores = saved
        for attn, core in zip(attentions, cores, strict=True):
            attn.core = core


def attend_plainly(attend: Attend, q: Tensor, k: Tensor, v: Tensor, starts: Tensor, longest: int) -> Tensor:
    """Compute causal attention within pieces without flash attention, in the way that suits the device."""
    # A graph cannot read the sizes of pieces on the host, and a GPU would be waited for.
    if q.device.type != "cpu" or torch.compiler.is_compiling():
        return attend_in_spans(q, k, v, starts, longest)
    return attend_one_by_one(attend, q, k, v, starts)


def attend_one_by_one(attend: Attend, q: Tensor, k: Tensor, v: Tensor, starts: Tensor) -> Tensor:
    """Compute causal attention within pieces, one call of `attend` each: memory grows with the longest piece only.

    `q` `[1, n, H, D]`, `k` and `v` `[1, n, K, D]`; `starts` `[n]` are those of `piece_starts`.
    """
    sizes = starts.unique_consecutive(return_counts=True)[1].tolist()
    return torch.cat([attend(*part) for part in zip(*(t.split(sizes, dim=1) for t in (q, k, v)), strict=True)], dim=1)


def attend_in_spans(q: Tensor, k: Tensor, v: Tensor, starts: Tensor, longest: int) -> Tensor:
    """Compute the same with fixed shapes and without reading from the device, for compiled graphs and GPUs.

    A row is cut into spans of `longest` tokens. A piece begins in the span of its tokens or in the one before, so that
    each span attends to two: memory grows with n · longest, not with n².
    """
    tokens, heads = q.size(1), q.size(2)
    # The rest of the last span: each padded token is a piece of its own.
    pad = -tokens % longest
    place = torch.arange(tokens + pad, device=q.device)
    starts = torch.where(place < tokens, F.pad(starts, (0, pad)), place)
    spans = [_spans(F.pad(t, (0, 0, 0, 0, 0, pad)), longest) for t in (q, k, v)]
    # Before the first span stand zeros. Their places are negative and below every start, so that the mask hides them.
    queries, keys, values = (
        spans[0],
        *(_with_span_before(t).repeat_interleave(heads // t.size(1), 1) for t in spans[1:]),
    )
    query = place.view(-1, longest, 1)
    key = torch.cat((query - longest, query), dim=1).mT  # [spans, 1, 2·longest]
    seen = (key <= query) & (key >= starts.view(-1, longest, 1))
    y = F.scaled_dot_product_attention(queries, keys, values, attn_mask=seen[:, None])
    return y.transpose(1, 2).reshape(1, tokens + pad, heads, -1)[:, :tokens]


def _spans(t: Tensor, longest: int) -> Tensor:
    """Return `t` `[1, n, H, D]` as `[n / longest, H, longest, D]`."""
    return t.view(-1, longest, *t.shape[2:]).transpose(1, 2)


def _with_span_before(t: Tensor) -> Tensor:
    """Return `t` `[spans, H, longest, D]` with the span before in front, `[spans, H, 2·longest, D]`."""
    return torch.cat((F.pad(t[:-1], (0, 0, 0, 0, 0, 0, 1, 0)), t), dim=2)


def cumulative_lengths(starts: Tensor, most: int) -> Tensor:
    """Return where up to `most` pieces begin and the last one ends, int32 `[most + 1]`, the end repeated.

    Kernels of variable length take this. The shape is fixed, so that one compiled graph serves every row.
    """
    tokens = starts.numel()
    place = torch.arange(tokens, device=starts.device)
    number = running((starts == place).long(), torch.cumsum, torch.add) - 1  # number of the token's piece
    lengths = torch.full((most + 1,), tokens, dtype=torch.int32, device=starts.device)
    # Tokens of one piece write the same number. More pieces than fit give no numbers, see `separate_documents`.
    lengths[:-1].scatter_(0, number.clamp(max=most - 1), starts.int())
    return lengths
