"""Sliding window with sinks: a token attends to the last tokens before it, and to the first ones of its document."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from golf.errors import GolfError
from golf.settings.config import Config
from golf.settings.fields import number
from golf.training.model.attention import CausalSelfAttention
from golf.training.model.documents import PIECES
from golf.training.model.gpt import GPT
from golf.training.model.layers import Context
from golf.training.model.slots import set_slot
from golf.training.techniques.base import Technique, technique


def starts_in_batch(batch: int, tokens: int, context: Context, device: torch.device) -> Tensor:
    """Return for every token of `batch` rows laid end to end the first one of its document, or row, int64 `[B·T]`."""
    starts = context.shared.get(PIECES)
    # Places of the flat batch in both cases, unlike those of `starts_of`.
    return torch.arange(batch * tokens, device=device) // tokens * tokens if starts is None else starts


def seen_keys(places: Tensor, starts: Tensor, first: Tensor, window: int, sinks: int) -> Tensor:
    """Return whether queries see the keys of their span, bool `[spans, span, sinks + 2·span]`.

    The keys are the first `sinks` tokens of the document that reaches into the span, the span before, and the span.
    `places` and `starts` of queries are `[spans, span]`, `first` `[spans]` is where that document begins.
    """
    query, start = places[:, :, None], starts[:, :, None]
    near = torch.cat((places - places.size(1), places), 1)[:, None]
    in_window = (near <= query) & (near > query - window) & (near >= start)
    sink = first[:, None, None] + torch.arange(sinks, device=places.device)
    # A sink inside the window is one of its keys already. A query of another document has its sinks in its window.
    behind = (start == first[:, None, None]) & (sink <= query - window)
    return torch.cat((behind, in_window), -1)


def attend_in_window(
    attn: CausalSelfAttention, q: Tensor, k: Tensor, v: Tensor, context: Context, *, window: int, sinks: int
) -> Tensor:
    """Return softmax attention `[B, T, H, D]` to the last `window` tokens and the first `sinks` of the document.

    `q` is `[B, T, H, D]`, `k` and `v` `[B, T, K, D]`. The flat batch is cut into spans of `window` tokens, and each
    attends to itself, the span before and its sinks, so that memory grows with B·T·window.
    """
    shape, device = q.shape, q.device
    starts = starts_in_batch(shape[0], shape[1], context, device)
    tokens = starts.numel()
    span = min(window, tokens)
    # Each token that fills the last span is a document of its own.
    places = torch.arange(tokens + -tokens % span, device=device)
    starts = torch.where(places < tokens, F.pad(starts, (0, places.numel() - tokens)), places).view(-1, span)
    q, k, v = (F.pad(t.flatten(0, 1), (0, 0, 0, 0, 0, places.numel() - tokens)) for t in (q, k, v))
    # Only one document reaches into a span from before, and a sink outside the window lies before the span.
    at = (starts[:, :1] + torch.arange(sinks, device=device)).clamp(max=places.numel() - 1)
    keys, values = (torch.cat((t[at], before_and_own(t.unflatten(0, (-1, span)))), 1) for t in (k, v))
    queries = q.view(starts.size(0), span, k.size(1), -1, q.size(-1))  # [spans, span, K, H / K, D]
    scores = torch.einsum("snkgd,smkd->skgnm", queries, keys) / q.size(-1) ** 0.5
    seen = seen_keys(places.view(-1, span), starts, starts[:, 0], window, sinks)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    shares = scores.masked_fill(~seen[:, None, None], float("-inf")).softmax(-1)
    y = torch.einsum("skgnm,smkd->snkgd", shares.to(v.dtype), values)
    return y.reshape(-1, *shape[2:])[:tokens].view(shape)


def before_and_own(spans: Tensor) -> Tensor:
    """Return every span of `[spans, span, K, D]` with the one before in front of it, `[spans, 2·span, K, D]`."""
    return torch.cat((F.pad(spans[:-1], (0, 0, 0, 0, 0, 0, 1, 0)), spans), 1)


@technique("window_sink")
@dataclass
class WindowSink(Technique):
    """The other layers keep whole attention, which makes a hybrid. Layers are counted from 0, or from the end if
    negative.
    """

    source = "arXiv 2309.17453 (sinks), 2004.05150 (window); PR #1245 (windows of 1,024)"
    # The slot `core` of attention holds one thing.
    conflicts = ("attention_sink", "differential_attention")

    window: int = number(256, at_least=1)  # last tokens that a token sees, itself included
    sinks: int = number(4, at_least=0)  # first tokens of its document, or row, that it sees as well
    layers: list[int] | None = None  # layers with a window; null = all

    def acts_after(self) -> int:
        """Return the tokens of a document that see all of it, which proofs have to exceed."""
        return self.window + self.sinks

    def check(self, cfg: Config) -> None:
        """Refuse layers that the model does not have, and windows that leave nothing out."""
        count = cfg.model.num_layers
        chosen = range(count) if self.layers is None else self.layers
        if wrong := [layer for layer in chosen if not -count <= layer < count]:
            raise GolfError(f"tech.window_sink.layers names layer {wrong[0]}: the model has {count}.")
        if not chosen or len({layer % count for layer in chosen}) < len(chosen):
            raise GolfError(f"tech.window_sink.layers={self.layers} has to name different layers, at least one.")
        if self.acts_after() >= cfg.data.train_seq_len:
            raise GolfError(
                f"tech.window_sink: a window of {self.window} and {self.sinks} sinks are all of "
                f"data.train_seq_len={cfg.data.train_seq_len}: choose fewer."
            )

    def edit_model(self, model: GPT, cfg: Config) -> None:
        """Set the core of the chosen layers."""
        for layer in range(cfg.model.num_layers) if self.layers is None else self.layers:
            core = partial(attend_in_window, window=self.window, sinks=self.sinks)
            set_slot(model.blocks[layer].attn, "core", core, self.name)
