"""PPM over bytes, as a predictor of tokens: a token is its bytes and then its end, on the trie of the vocabulary."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece

from golf.errors import GolfError
from golf.paths import resolve
from golf.settings.config import Config
from golf.settings.fields import number
from golf.training.data.byte_tables import SPACE
from golf.training.scoring.predictor import Predictor, Proposal
from golf.training.techniques.base import CHANGES_SCORE, Technique, technique

END, SPECIAL = -1, 256  # the end of a token; the mark before the id of a token without text of its own
Spelling = tuple[int, ...]
Counts = tuple[dict[int, int], int]  # how often each event has followed a context, and their sum


def special(token: int) -> Spelling:
    """Return the spelling of a token without text: no other token begins with its mark."""
    return SPECIAL, token // 256, token % 256


def spellings(tokenizer_path: Path, vocab_size: int) -> list[Spelling]:
    """Return the bytes of every token, all different; control tokens and single bytes have a mark and their id.

    Without a tokenizer, as in proofs, the text of a token is its number in decimals.
    """
    if not tokenizer_path.is_file():
        return [tuple(str(token).encode()) for token in range(vocab_size)]
    pieces = sentencepiece.SentencePieceProcessor(model_proto=tokenizer_path.read_bytes())
    without_text = (pieces.is_control, pieces.is_unknown, pieces.is_unused, pieces.is_byte)
    found = [special(token) for token in range(vocab_size)]
    for token in range(min(vocab_size, pieces.vocab_size())):
        if not any(kind(token) for kind in without_text):
            found[token] = tuple(pieces.id_to_piece(token).replace(SPACE, " ").encode())
    return found


class Trie:
    """The vocabulary by prefixes: the events that may follow each, bytes and END."""

    def __init__(self, tokens: Sequence[Spelling]):
        following: defaultdict[Spelling, set[int]] = defaultdict(set)
        for token in tokens:
            for n, byte in enumerate((*token, END)):
                following[token[:n]].add(byte)
        self.events = {prefix: sorted(events) for prefix, events in following.items()}


class BytePPM(Predictor):
    """q(token) = Π q(event | bytes before it, prefix of the token) over the token's bytes and its END.

    With c the counts of the events that have followed a context, u of them not zero,
    q_n(e) = (max(c(e) - D, 0) + D·u·q_{n-1}(e)) / Σc for a context of n bytes, as PPM's method D with D = ½, and
    q_{-1} is uniform: over 257 bytes and marks, or over END and no END. END is counted by the prefix and n bytes before
    it, a byte by the last n bytes. The bytes that the trie has at a prefix share what END leaves, in proportion to q.
    """

    def __init__(self, tokens: Sequence[Spelling], order: int, strength: float, discount: float):
        self.tokens, self.order, self.strength, self.discount = tokens, order, strength, discount
        self.trie = Trie(tokens)
        self.reset()

    def reset(self) -> None:
        self.bytes: dict[Spelling, dict[int, int]] = {}
        self.ends: dict[tuple[int, Spelling], dict[int, int]] = {}
        self.last: Spelling = ()

    def byte_contexts(self, prefix: Spelling) -> list[Spelling]:
        """Return the contexts of the byte after `prefix`, shortest first."""
        text = self.last + prefix
        return [text[len(text) - n :] for n in range(min(self.order, len(text)) + 1)]

    def end_contexts(self, prefix: Spelling) -> list[tuple[int, Spelling]]:
        """Return the contexts of the end after `prefix`, shortest first: the prefix, and n bytes before it."""
        text = self.last + prefix
        return [(len(prefix), text[len(self.last) - n :]) for n in range(min(self.order, len(self.last)) + 1)]

    def blended(self, event: int, seen: Sequence[Counts], uniform: float) -> float:
        """Return q of the longest context for `event`; `seen` are the counts by context, shortest context first."""
        q = uniform
        for counts, total in seen:
            q = (max(counts.get(event, 0) - self.discount, 0.0) + self.discount * len(counts) * q) / total
        return q

    def law(self, prefix: Spelling) -> dict[int, float]:
        """Return the probabilities of all events after `prefix`; they sum to one."""
        events = self.trie.events[prefix]
        following = [event for event in events if event != END]
        if not following:
            return {END: 1.0}
        end = 0.0
        if len(following) < len(events):
            end = self.blended(1, with_totals(self.ends, self.end_contexts(prefix)), 0.5)
        seen = with_totals(self.bytes, self.byte_contexts(prefix))
        each = {event: self.blended(event, seen, 1 / 257) for event in following}
        left = (1 - end) / sum(each.values())
        return {END: end, **{event: q * left for event, q in each.items()}}

    def propose(self, history: np.ndarray) -> Proposal:
        """Return q, at full strength once the longest context of the next byte has been seen before."""
        laws: dict[Spelling, dict[int, float]] = {}

        def probability(token: int) -> float:
            q, spelling = 1.0, self.tokens[token]
            for prefix, event in steps(spelling):
                if prefix not in laws:
                    laws[prefix] = self.law(prefix)
                q *= laws[prefix][event]
            return q

        is_known = len(self.last) >= self.order and self.last[len(self.last) - self.order :] in self.bytes
        return Proposal(self.strength if is_known else 0.0, probability)

    def see(self, token: int) -> None:
        for prefix, event in steps(self.tokens[token]):
            events = self.trie.events[prefix]
            if END in events and len(events) > 1:
                for context in self.end_contexts(prefix):
                    count(self.ends.setdefault(context, {}), int(event == END))
            if event != END:
                for context in self.byte_contexts(prefix):
                    count(self.bytes.setdefault(context, {}), event)
        self.last = (*self.last, *self.tokens[token])[-self.order :]


def steps(spelling: Spelling) -> Iterator[tuple[Spelling, int]]:
    """Yield the prefixes of a token with the event after each; the last event is END."""
    for n, event in enumerate((*spelling, END)):
        yield spelling[:n], event


def with_totals(counts: Mapping[Any, dict[int, int]], contexts: Sequence[Any]) -> list[Counts]:
    """Return the counts of those `contexts` that have been seen."""
    return [(counts[context], sum(counts[context].values())) for context in contexts if context in counts]


def count(counts: dict[int, int], event: int) -> None:
    """Count `event` once more."""
    counts[event] = counts.get(event, 0) + 1


@technique("byte_ppm")
@dataclass
class BytePPMMixture(Technique):
    """Its counts are kept by each rank in dicts of Python, and its seconds count as evaluation."""

    source = "PPM, Cleary and Witten 1984, method D; PR #1785 and others, with the token's end that they leave out"
    effect = CHANGES_SCORE

    order: int = number(5, at_least=1)  # bytes of the longest context
    strength: float = number(0.1, above=0, below=1)  # λ, its share of the mixture
    discount: float = number(0.5, above=0, below=1)  # D, taken off each count

    def check(self, cfg: Config) -> None:
        """Refuse text as bytes, whose tokens have no spelling to tell apart."""
        if cfg.data.units == "bytes":
            raise GolfError("tech.byte_ppm spells tokens, and with data.units=bytes each is a byte: take token_ngram.")

    def predictor(self, cfg: Config) -> BytePPM:
        """Return the predictor before any text."""
        tokens = spellings(resolve(cfg.data.tokenizer_path), cfg.model.vocab_size)
        return BytePPM(tokens, self.order, self.strength, self.discount)
