"""Search for scores that the rules forbid: it runs a scoring on a small text and does not read its code.

The conditions are those of the community's Issue #1017. A text is scored again and again with one token changed:

* causality: no target before the changed one may get another score;
* a distribution that does not know its target: the scores of target t, when it is each token of the vocabulary in
  turn, have to be probabilities that sum to one. They do not if the distribution is not normalised, or if it was
  computed from weights or a context that had seen target t already;
* one pass: every target is scored exactly once;
* for scores by document: no target of another document may get another score.

Scores that are taken in an order of their own, that of a queue of documents, are judged by that order: "earlier" is
what was scored before, and the queue is that of the unchanged text. It follows from the documents' lengths, which
changing a target into the beginning of a document would change.

This catches breaches and proves nothing: it sees one small model, one short text and a few of its targets.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from golf.artifact.quant.formats import Tensors
from golf.lab.proofs.float64 import InFloat64
from golf.settings.config import Config, changes_score
from golf.training.data.dataset import Dataset
from golf.training.data.documents import BOS_ID
from golf.training.ranks import Ranks
from golf.training.scoring.document_queue import list_documents
from golf.training.scoring.predictor import Predictor
from golf.training.scoring.scorer import Scorer
from golf.training.scoring.tally import Observe

ScoreText = Callable[[np.ndarray, Observe], object]  # scores tokens [N + 1] and passes the nats of every target on
EXACT = 1e-9  # nats, or sums of probabilities, in float64
MIXED = 1e-6  # sums of probabilities with those of predictors and hints, which are float32


class _Record:
    """Observer that keeps every target's first score in nats, its place in the order, and how often it was scored."""

    def __init__(self, targets: int):
        self.nats, self.times = np.full(targets, np.nan), np.zeros(targets, dtype=np.int64)
        self.places, self.calls = np.zeros(targets, dtype=np.int64), 0

    def __call__(self, indices: np.ndarray, nats: np.ndarray) -> None:
        self.calls += 1
        for i, value in zip(indices, nats, strict=True):
            if not self.times[i]:
                self.nats[i], self.places[i] = value, self.calls
            self.times[i] += 1


def find_breaches(
    score_text: ScoreText,
    tokens: np.ndarray,
    vocab_size: int,
    probes: Sequence[int],
    *,
    by_document: bool = False,
    in_order: bool = False,
    rounding: float = EXACT,
) -> list[str]:
    """Return a sentence for every breach that changing the targets `probes` of `tokens` `[N + 1]` brings to light.

    With `in_order` scores are judged by the order in which they are taken. Sums of probabilities may miss 1 by
    `rounding`.
    """

    def scored(text: np.ndarray) -> _Record:
        record = _Record(text.size - 1)
        score_text(text, record)
        return record

    original = scored(tokens)
    if _largest_change(scored(tokens).nats, original.nats) > EXACT:
        return ["the same text has other scores the second time: they depend on random numbers or on earlier calls"]
    breaches = _not_once(original.times)
    for t in probes:
        changed_before, changed_elsewhere, total = 0.0, 0.0, 0.0
        # Text behind the next BOS is another document, whichever token is put in.
        later = np.flatnonzero(tokens[t + 2 :] == BOS_ID) + t + 2
        earlier = _before(original.places, t, later) if in_order else np.arange(tokens.size - 1) < t
        for token in range(vocab_size):
            text = tokens.copy()
            text[t + 1] = token
            found = scored(text).nats
            changed_before = max(changed_before, _largest_change(found[earlier], original.nats[earlier]))
            if by_document and later.size:
                apart = slice(int(later[0]), None)
                changed_elsewhere = max(changed_elsewhere, _largest_change(found[apart], original.nats[apart]))
            total += float(np.exp(-found[t]))
        if changed_before > EXACT:
            breaches.append(f"changing target {t} changes an earlier score by {changed_before:.2g} nats")
        if changed_elsewhere > EXACT:
            breaches.append(f"changing target {t} changes a score in a later document by {changed_elsewhere:.2g} nats")
        # Turned round, so that NaN is a breach, too.
        if not abs(total - 1.0) <= rounding:
            fault = "they are not normalised, or know the target"
            said = f"1 {total - 1.0:+.1g}" if abs(total - 1.0) <= 1e-5 else f"{total:.6g}"
            breaches.append(f"the probabilities of target {t} sum to {said}: {fault}")
    return breaches


def _before(places: np.ndarray, t: int, later: np.ndarray) -> np.ndarray:
    """Return which targets are scored before target `t`, or beside it in other documents, bool `[N]`.

    `later` are the beginnings of the documents behind that of `t`.
    """
    indices = np.arange(places.size)
    reads_it = (places == places[t]) & (indices >= t) & (indices < (later[0] if later.size else places.size))
    return (places <= places[t]) & ~reads_it


def _largest_change(found: np.ndarray, before: np.ndarray) -> float:
    # A target without a score is NaN, and `_not_once` reports it.
    return float(np.nan_to_num(np.abs(found - before)).max(initial=0.0))


def _not_once(times: np.ndarray) -> list[str]:
    never, again = np.flatnonzero(times == 0), np.flatnonzero(times > 1)
    breaches = []
    if never.size:
        breaches.append(f"{never.size} targets are never scored, the first of them is {never[0]}")
    if again.size:
        breaches.append(f"{again.size} targets are scored more than once, the first of them is {again[0]}")
    return breaches


def predictor_breaches(predictor: Predictor, vocab_size: int, tokens: np.ndarray, first: int = 200) -> list[str]:
    """Return a sentence for the first target of `tokens` `[N + 1]` at which a predictor breaks a rule.

    Its probabilities of all tokens have to sum to one, its strength has to be a share, and `follow` has to say the same
    before it knows the later tokens. Asked for are the `first` targets and behind them powers of two and the last one.
    """
    half = tokens.size // 2
    followed = predictor.follow(tokens), predictor.follow(np.concatenate((tokens[:half], tokens[half:][::-1])))
    predictor.reset()
    predictor.see(int(tokens[0]))
    for i, target in enumerate(tokens[1:].tolist()):
        if i >= first and i & (i - 1) and i < tokens.size - 2:
            predictor.see(target)
            continue
        strength, probability = predictor.propose(tokens[: i + 1])
        law = np.array([probability(token) for token in range(vocab_size)])
        # Turned round, so that NaN is a breach, too.
        if not (abs(law.sum() - 1.0) <= EXACT and law.min() >= 0.0 and 0.0 <= strength <= 1.0):
            return [
                f"the probabilities of all tokens for target {i} sum to {law.sum():.9g}, the least is {law.min():.3g}, "
                f"and the strength is {strength:.3g}: they have to sum to 1, from 0 up, and it has to be a share"
            ]
        said = [(found.shares[i], found.strengths[i]) for found in followed[: 1 + (i < half - 1)]]
        if not np.allclose(said, (law[target], strength), rtol=1e-5, atol=1e-7):
            return [f"follow does not say what propose says of target {i}, or knows a later token"]
        predictor.see(target)
    return []


def modes_of(cfg: Config) -> list[str]:
    """Return the names of the scores that a run of `cfg` takes of its artifact."""
    wanted = {"standard": True, "sliding": cfg.eval.stride > 0, "ttt": cfg.eval.ttt.method != "off"}
    return [mode for mode, is_taken in wanted.items() if is_taken]


def follows_queue(cfg: Config) -> bool:
    """Tell whether test-time training makes scores depend on documents' lengths: by queue, windows, chunks or hints."""
    ttt = cfg.eval.ttt
    return ttt.method == "lora" and (
        ttt.lora_a != "same"
        or ttt.lora_windows == "document"
        or ttt.lora_phases.count > 0
        or len(ttt.lora_chunks) > 0
        or cfg.eval.tilt.method != "off"
        or changes_score(cfg)
    )


def check_scoring(cfg: Config, weights: Tensors, dataset: Dataset, probes: Sequence[int]) -> dict[str, list[str]]:
    """Return the breaches by kind of score, for `cfg`'s scores of `weights` on `dataset`, by the code of a run.

    Every score is repeated for each token of the vocabulary at each probe, so use a tiny vocabulary and text. All is
    computed in float64.
    """
    scorer = Scorer(cfg, dataset, Ranks())
    scorer.model.double()
    in_order = follows_queue(cfg)
    documents = list_documents(dataset.validation) if in_order else None

    def score_text(mode: str) -> ScoreText:
        def score(tokens: np.ndarray, observe: Observe) -> None:
            scorer.dataset = dataclasses.replace(dataset, validation=tokens)
            with InFloat64():
                if mode == "standard":
                    scorer(weights, observe=observe)
                elif mode == "sliding":
                    scorer.sliding(weights, observe=observe)
                elif documents is not None:
                    scorer.trained_by_document(weights, observe=observe, documents=documents)
                else:
                    scorer.test_time_trained(weights, observe=observe)

        return score

    return {
        mode: find_breaches(
            score_text(mode),
            dataset.validation,
            cfg.model.vocab_size,
            probes,
            # Test-time training learns from the documents before.
            by_document=cfg.eval.documents and mode != "ttt",
            in_order=in_order and mode == "ttt",
            rounding=MIXED if changes_score(cfg) or cfg.eval.tilt.method != "off" else EXACT,
        )
        for mode in modes_of(cfg)
    }
