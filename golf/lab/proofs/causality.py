"""Proof that a network reads no later token, no other document and no other row: exact, because it is in float64.

A network that reads the past alone gives the same numbers, to the last bit, whatever comes later. In float64 a leak of
any size that matters shows beside that. It is looked for at random weights before the clock and at the trained ones
after it, because a gain may grow.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import torch
from torch import Tensor

from golf.lab.proofs.float64 import InFloat64
from golf.settings.config import Config
from golf.training.data.documents import BOS_ID
from golf.training.model.build import build_scored_model
from golf.training.model.gpt import GPT

# Of outputs and nats of size 1. Only what mixes all positions and takes them apart again, such as Fourier transforms,
# changes them at all, by 1e-14.
LARGEST_ROUNDING = 1e-11
MOST_TOKENS, MOST_OPERATIONS = 8192, 3e9  # of the changed rows; about a second of one core
ROWS_TOGETHER, MOST_LOGITS = 1024, 2**24  # tokens and logits of a pass
SLOW_ROW = 48  # a technique that reads a row in its own way may need a pass for each token
SHORT_ROW, SPECIAL, MANY_DIVISORS = 24, 8, 240  # tokens, tokens, tokens


Outputs = tuple[Tensor, Tensor]


def trained_model(cfg: Config, weights: Mapping[str, Tensor]) -> GPT:
    """Return the scored model of `cfg` with `weights` on the CPU, in float64."""
    # Kernels for GPUs refuse tensors on a CPU.
    within = cfg.model.within_documents or cfg.eval.documents
    shape = dataclasses.replace(cfg.model, attention="sdpa", compute_dtype="fp32", within_documents=within)
    scored = dataclasses.replace(cfg, model=shape, eval=dataclasses.replace(cfg.eval, dtype="fp32"))
    model = build_scored_model(scored, torch.device("cpu")).double()
    model.load_state_dict({name: weights[name].detach().cpu() for name in weights})
    return model


@torch.no_grad()
def row_leaks(model: GPT, tokens: Tensor, seed: int = 0) -> list[str]:
    """Return a sentence if a token acts on the output or score of an earlier one, or on another row of the batch.

    `tokens` `[T + 1]` are of the model's vocabulary. As many places of the row as the budget of operations allows are
    changed, each with everything behind it; `seed` says which.
    """
    if model.read is not GPT.pass_once:
        tokens = tokens[: SLOW_ROW + 1]
    vocab, length = model.cfg.vocab_size, len(tokens) - 1
    generator = torch.Generator().manual_seed(seed)
    # No token stays as it is. BOS may come in, because a later document must not be seen either.
    others = (tokens + torch.randint(1, vocab, tokens.shape, generator=generator)) % vocab
    few = torch.stack((tokens, tokens.roll(7)))[:, : SLOW_ROW + 1]
    for first in (0, 1):
        changed = few.clone()
        changed[1 - first] = others[: SLOW_ROW + 1]
        if _differ(_outputs(model, few), _outputs(model, changed))[0][first].any():
            return ["a row of the batch changes the output of another one"]
    together = max(1, ROWS_TOGETHER // length)
    if found := _leak_from(model, tokens, others, _places(model, length, generator), together):
        return [found]
    short = _short_row(vocab, generator)
    found = _leak_from(model, short, (short + 1) % vocab, torch.arange(1, SHORT_ROW), SHORT_ROW - 1)
    return [found] if found else []


def _short_row(vocab: int, generator: torch.Generator) -> Tensor:
    """Return a row `[SHORT_ROW + 1]` of which every place is tried: special tokens, one that comes twice, and others.

    What goes wrong at a document's start or for one token goes wrong at few places of a long row.
    """
    row = torch.randint(vocab, (SHORT_ROW + 1,), generator=generator)
    # Tokenizers begin with their special tokens.
    row[1:SHORT_ROW:2][: min(SPECIAL, vocab)] = torch.arange(min(SPECIAL, vocab))
    row[-3] = row[-4]
    return row


def _leak_from(model: GPT, tokens: Tensor, others: Tensor, places: Tensor, together: int) -> str | None:
    """Return a sentence if `others` from one of the places on, instead of `tokens`, act before that place.

    `together` rows are computed at a time.
    """
    rows = tokens.expand(together, -1)
    whole = _outputs(model, rows)
    for part in places.split(together):
        # Rows are compared at one place of equal batches, so that even the last bit is equal.
        part = torch.cat((part, part[-1:].expand(together - len(part))))
        is_later = torch.arange(len(tokens)) >= part[:, None]
        changed = torch.where(is_later, others, rows)
        # The targets stay, because a score that knows its own target would change with it. Then they alone change.
        outputs, nats = _differ(whole, _outputs(model, changed, rows))
        of_targets = _unequal(whole[1], _nats(model, whole[0], changed))
        earlier = ~is_later[:, :-1]
        for what, found in (
            ("output", outputs & earlier),
            ("score", nats & earlier),
            ("score", of_targets & ~is_later[:, 1:]),
        ):
            if len(where := found.nonzero()):
                row, place = where[0].tolist()
                return f"in rows of {len(tokens) - 1} tokens, token {int(part[row])} changes the {what} at {place}"
    return None


@torch.no_grad()
def document_leaks_of(model: GPT, tokens: Tensor) -> list[str]:
    """Return a sentence if a changed token of `tokens` `[T + 1]` acts on the model's output in another document."""
    length = len(tokens) - 1
    begin, end = length // 3, 2 * length // 3
    rows = tokens[None].clone()
    rows[:, [0, begin, end]] = BOS_ID
    for start, stop in ((1, begin), (begin + 1, end)):
        changed = rows.clone()
        # Each token becomes another one, and none of them BOS.
        changed[:, start:stop] = 2 + (rows[:, start:stop] - 1) % (model.cfg.vocab_size - 2)
        outputs, nats = _differ(_outputs(model, rows), _outputs(model, changed))
        if outputs[0, :start].any() or outputs[0, stop:].any() or nats[0, stop:].any():
            return ["model.within_documents: a changed token changes the output in another document"]
    return []


def _places(model: GPT, length: int, generator: torch.Generator) -> Tensor:
    """Return where rows of `length` tokens are changed, the last token first: all places of a short row."""
    operations = 2 * length * sum(p.numel() for p in model.parameters())
    count = int(min(length - 1, MOST_TOKENS // length, MOST_OPERATIONS // operations))
    if model.read is not GPT.pass_once:
        count = 1
    # Where chunks of 2, 4, 8, … or of 12, 20, 24, 48, 60, 80, … tokens meet; in the middle, which most chunks reach.
    chunks = 2 ** ((length - 1).bit_length() - 1), max(2 * length // 3 // MANY_DIVISORS * MANY_DIVISORS, 1)
    first = torch.tensor([length - 1, *chunks]).clamp(max=length - 1).unique().flip(0)
    drawn = torch.randperm(length - 1, generator=generator) + 1
    return torch.cat((first, drawn[~torch.isin(drawn, first)]))[: max(count, len(first))]


def _differ(whole: Outputs, other: Outputs) -> tuple[Tensor, Tensor]:
    """Return where outputs and nats of two texts differ, bool `[B, T]` each."""
    return _unequal(whole[0], other[0]).any(-1), _unequal(whole[1], other[1])


def _unequal(one: Tensor, other: Tensor) -> Tensor:
    # Turned round, so that NaN on one side counts. NaN on both says nothing.
    close = (one - other).abs() <= LARGEST_ROUNDING * (1.0 + one.abs())
    return ~(close | (one == other) | (one.isnan() & other.isnan()))


def _outputs(model: GPT, text: Tensor, targets: Tensor | None = None) -> Outputs:
    """Return outputs `[B, T, d]` and nats `[B, T]` for a text `[B, T + 1]`, or for the targets of another text."""
    with InFloat64():
        hidden = model.hidden(text[:, :-1])
    return hidden, _nats(model, hidden, text if targets is None else targets)


def _nats(model: GPT, hidden: Tensor, text: Tensor) -> Tensor:
    """Return the nats `[B, T]` of the targets in a text. Those that would need too much memory are left at zero."""
    shown = min(hidden.size(1), max(2, MOST_LOGITS // (len(text) * model.cfg.vocab_size)))
    nats = hidden.new_zeros(hidden.shape[:2])
    with InFloat64():
        nats[:, -shown:] = model.losses_of(hidden[:, -shown:], text[:, -shown:])
    return nats


def text_of_all_tokens(vocab_size: int, length: int) -> Tensor:
    """Return `length` + 1 tokens `[T + 1]` that run through the vocabulary, without BOS."""
    return torch.arange(length + 1) % (vocab_size - 2) + 2


def cut_to(weights: Mapping[str, Tensor], smaller: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the corners of `weights` that have the shapes of `smaller`'s tensors, and these where none fits."""
    cut = {}
    for name, tensor in smaller.items():
        held = weights.get(name)
        fits = held is not None and held.ndim == tensor.ndim and all(map(_at_least, held.shape, tensor.shape))
        cut[name] = held[tuple(map(slice, tensor.shape))].detach().cpu() if held is not None and fits else tensor
    return cut


def _at_least(size: int, wanted: int) -> bool:
    return size >= wanted
