"""The scores of a logged run, and the kind of each: before quantization, flat, sliding window, adapted or mixed.

There are several hundred tags of final scores. A tag is its author's word: `final_int8_zlib_roundtrip_exact` often
repeats the sliding score of an int6 model. A tag is therefore believed unless the same run contradicts it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from golf.bits import STANDARD
from golf.field.figures import Figure
from golf.field.log_lines import ScoreLine
from golf.tables import any_of, table_of

PRE, POST, SLIDING, TTT, MIXED, OTHER = "pre_quant", "post_quant", "sliding", "ttt", "mixed", "other"
# In ascending order of effort. A run's final score is the one of the last kind that it has.
ARTIFACT_KINDS = (POST, SLIDING, TTT, MIXED)
FLAT_GAIN_BPB = 0.012  # largest gain of a flat score of a quantized model over the score before quantization
SLOW_SECONDS = 15.0  # least duration of a sliding score; a flat one takes 1.4 to 6 s on eight GPUs
AVERAGING_GAIN_BPB = 0.1  # largest gain of averaged weights over the last step's
SLIDING_GAIN_BPB = 0.06  # largest gain of a sliding window over a flat score; public logs have up to 0.035
COLLAPSE_BPB = 0.05  # loss by adaptation from which on the adapted score is not the one that was meant
LEAST_BPB = 0.3  # bpb of the best score that a model can have on text; a mixture that sees its target is below it
MOST_BPB = 20.0  # bpb of the worst; larger numbers are something else, such as bytes

_WORDS = table_of(__file__)
_QUOTED = re.compile(rf"\b(?:{'|'.join(_WORDS['quoted'])})\b|^#|^\s*[|>]|^import\b", re.IGNORECASE)
_MIXED, _ADAPTED, _SLID, _PRE, _POST, _RESULT = (
    any_of(_WORDS[kind]) for kind in ("mixed", "adapted", "slid", "pre", "post", "result")
)
# The best of a script's own mixtures is a result; `best` before other words cites another score.
# The average of a script's own weights is no average of scores.
_OWN = re.compile(r"_best\b|best_(?=agree)|\bpost[ _-]?(?:avg|average\w*)\b")
# Ways of scoring that reviewers look into: a target in the key of a cache, an adaptation to the token that is scored.
QUESTIONED = any_of([*_WORDS["mixed"], r"(?:^|_)slot(?=_|\d|$)"])
# Scripts go on printing the baseline's tag for old parsers, whatever the score is.
_COMPATIBLE = re.compile(r"^final_int8_zlib_roundtrip")


@dataclass(frozen=True)
class LoggedScore(ScoreLine):
    """A score of a run, with its kind."""

    kind: str = OTHER  # settled by the whole run
    claimed: str = OTHER  # kind by the tag alone
    line: int = 0
    seconds_line: int = 0
    doubt: str = ""  # reason why `kind` is not the claimed one

    @property
    def bpb(self) -> Figure:
        """Bits per byte with the digits of the log."""
        return Figure(self.val_bpb, "", self.bpb_text)

    @property
    def loss(self) -> Figure | None:
        """Nats per token with the digits of the log."""
        return None if self.val_loss is None else Figure(self.val_loss, "", self.loss_text)

    @property
    def digits(self) -> int:
        """Decimals of the bits per byte."""
        return len(self.bpb_text.partition(".")[2])

    @property
    def is_finite(self) -> bool:
        """Tell whether the bits per byte are finite."""
        return math.isfinite(self.val_bpb)

    @property
    def is_before_quantization(self) -> bool:
        """Tell whether the tag claims a score of the model before quantization, however it was taken."""
        return self.kind == PRE or _claims_before(_words(self.tag))

    @property
    def how(self) -> str:
        """The way of scoring, in the words of Golf's own scores where it is the same way."""
        stride = f", stride {self.stride}" if self.stride else ""
        if self.kind in (PRE, POST):
            return STANDARD
        if self.kind == SLIDING:
            return f"sliding window{stride}"
        way = "not told" if self.kind == OTHER else "adapted to the text"
        return f"{way} ({base_tag(self.tag)})" if self.tag else "not told"


def claimed_kind(tag: str, stride: int | None = None) -> str:
    """Return the kind that a tag claims, `other` if it names neither the artifact nor the model before quantization."""
    words = _words(tag)
    # Sentences about other scores, such as `record to beat`, are no tags.
    if not words or _QUOTED.search(_OWN.sub("", tag.lower()).replace("_", " ")):
        return OTHER
    is_pre = _claims_before(words)
    if _ADAPTED.search(words) or _MIXED.search(words):
        if is_pre:
            # A score adapted before quantization is not the artifact's, and not the bare model's.
            return OTHER
        return MIXED if _MIXED.search(words) else TTT
    if _SLID.search(words) or stride:
        return OTHER if is_pre else SLIDING
    return PRE if is_pre else POST if _POST.search(words) else OTHER


def _words(tag: str) -> str:
    """Return the words of a tag in lower case, with underscores between them; a sign such as 🏁 as it is."""
    return re.sub(r"[^a-z0-9]+", "_", tag.lower()).strip("_") or tag


def _claims_before(words: str) -> bool:
    """Tell whether the words of a tag claim a score before quantization."""
    return bool(_PRE.search(words)) and not re.search(r"round_?trip|(?:^|_)q?int\d", words)


def names_no_artifact(score: LoggedScore) -> bool:
    """Tell whether a score may be one before quantization: its tag says so, or nothing but `final`."""
    return score.kind == PRE or _words(score.tag) == "final"


def base_tag(tag: str) -> str:
    """Return the tag without a suffix such as `_exact`."""
    return re.sub(r"[_ ](?:exact|precise|full)$", "", tag.strip().rstrip(":"))


def logged(line: ScoreLine, number: int) -> LoggedScore | None:
    """Return line `number` as a score of the kind that its tag claims, None if the number cannot be a score."""
    if not may_be_bpb(line.val_bpb):
        return None
    kind = claimed_kind(line.tag, line.stride)
    return LoggedScore(**vars(line), kind=kind, claimed=kind, line=number, seconds_line=number)


def may_be_bpb(value: float) -> bool:
    """Tell whether a number can be meant as bits per byte: placeholders such as 0 and -1 and counts cannot."""
    # A score that is no number tells that the run diverged.
    return not math.isfinite(value) or 0 < value <= MOST_BPB


def settled(
    scores: Sequence[LoggedScore],
    *,
    sliding_from: int | None = None,
    stride: int | None = None,
    pre_quant_bpb: float | None = None,
    averaged: bool = False,
) -> list[LoggedScore]:
    """Return the scores with the kind that the whole run shows them to have, exact digits and seconds joined.

    `sliding_from` is the line at which the log announces sliding-window scoring, `stride` the run's setting,
    `pre_quant_bpb` the flat score before quantization. `averaged` tells whether weights were averaged after that score.
    """
    known: list[LoggedScore] = []
    # In the order of the log, as each rule looks at the scores before.
    for score in _joined(scores):
        if score.kind == POST and _COMPATIBLE.match(score.tag):
            score = _of_compatible_tag(score, known)
        if score.kind == POST and score.is_finite:
            score = _sliding_if_shown(score, sliding_from, pre_quant_bpb, averaged)
        if score.kind == MIXED and any(s.val_bpb == score.val_bpb and _claims_before(_words(s.tag)) for s in known):
            # The score before quantization was printed again, under the tag that parsers of the script look for.
            score = replace(score, kind=OTHER)
        if score.kind == SLIDING:
            score = _mixed_if_shown(score, last_of(known, POST), None if averaged else pre_quant_bpb)
            score = replace(score, stride=score.stride or stride)
        known.append(score)
    return known


def last_of(scores: Sequence[LoggedScore], kind: str) -> LoggedScore | None:
    """Return the last score of a kind."""
    return next((s for s in reversed(scores) if s.kind == kind), None)


def final_score(scores: Sequence[LoggedScore]) -> tuple[LoggedScore | None, str]:
    """Return the run's final score, and a fault if a more elaborate one was taken and is not it."""
    candidates = [s for kind in ARTIFACT_KINDS if (s := last_of(scores, kind))]
    # Else a bare number at the very end, or the last that its tag calls the result.
    candidates = candidates or [s for s in scores[-1:] if s.kind == OTHER and not s.tag]
    candidates = candidates or [s for s in scores if s.kind == OTHER and _RESULT.match(_words(s.tag))][-1:]
    finite = [s for s in candidates if s.is_finite]
    kinds = [s.kind for s in finite]
    if kinds[-2:] == [TTT, MIXED] and finite[-1].claimed == SLIDING and finite[-2].line > finite[-1].line:
        # A sliding score that looks like a mixture's is not the final one where an adapted score follows it.
        finite[-2:] = finite[-1], finite[-2]
    if not finite:
        return (candidates[-1] if candidates else None), ""
    plain = [s for s in finite if s.kind in (POST, SLIDING)]
    final = finite[-1]
    if plain and final.kind in (TTT, MIXED) and final.val_bpb > plain[-1].val_bpb + COLLAPSE_BPB:
        return plain[-1], f"{final.tag} got worse, {final.val_bpb:.4f} after {plain[-1].val_bpb:.4f}: not counted"
    return final, ""


def _joined(scores: Sequence[LoggedScore]) -> list[LoggedScore]:
    """Join `tag` and `tag_exact` to one score: the digits of the one, the seconds of the other."""
    joined: list[LoggedScore] = []
    for score in scores:
        base = base_tag(score.tag)
        if not (same := [i for i, s in enumerate(joined) if base_tag(s.tag) == base and _same_value(s, score)]):
            # An exact score without more digits than the rounded one was cut off with its log.
            if not any(s.tag == base != score.tag and score.digits <= s.digits for s in joined):
                joined.append(score)
            continue
        old = joined.pop(same[-1])
        exact, other = (old, score) if old.digits > score.digits else (score, old)
        timed = other if exact.seconds is None else exact
        joined.append(
            replace(
                exact,
                seconds=timed.seconds,
                seconds_line=timed.seconds_line,
                stride=exact.stride or other.stride,
                kind=exact.kind if exact.kind != POST else other.kind,
                claimed=exact.claimed if exact.claimed != POST else other.claimed,
            )
        )
    return joined


def _same_value(a: LoggedScore, b: LoggedScore) -> bool:
    """Tell whether two scores are the same number, rounded to the fewer digits."""
    digits = min(a.digits, b.digits)
    if not a.is_finite or not b.is_finite:
        return str(a.val_bpb) == str(b.val_bpb)
    return a.val_bpb == b.val_bpb or abs(a.val_bpb - b.val_bpb) <= 0.51 * 10.0**-digits


def _of_compatible_tag(score: LoggedScore, before: Sequence[LoggedScore]) -> LoggedScore:
    """Return a score of the compatible tag as `other` if it repeats another score or its kind cannot be told."""
    others = [s for s in before if s.kind in ARTIFACT_KINDS]
    same = next((s for s in reversed(others) if s.val_bpb == score.val_bpb), None)
    flat, doubt = last_of(before, POST), ""
    if same is not None and same.kind != POST:
        doubt = f"{base_tag(score.tag)} repeats the {same.kind} score of {base_tag(same.tag)}"
    elif same is None and flat is not None and abs(flat.val_bpb - score.val_bpb) > FLAT_GAIN_BPB:
        doubt = f"{score.tag} is a further score that its tag does not tell the kind of"
    return replace(score, kind=OTHER, doubt=doubt) if doubt else score


def _sliding_if_shown(
    score: LoggedScore, sliding_from: int | None, pre_quant_bpb: float | None, averaged: bool
) -> LoggedScore:
    """Return a round trip as a sliding score if the log says so or nothing else explains the number."""
    if sliding_from is not None and score.line > sliding_from and not re.search("flat|standard", score.tag):
        return replace(score, kind=SLIDING, doubt=f"{base_tag(score.tag)} is a sliding-window score")
    # Quantization adds error: scored alike, the artifact is not better than the model, but for averaged weights.
    gain = pre_quant_bpb - score.val_bpb if pre_quant_bpb is not None else 0.0
    if gain <= (AVERAGING_GAIN_BPB if averaged else FLAT_GAIN_BPB):
        return score
    doubt = (
        f"{base_tag(score.tag)} is {gain:.4f} below the score before quantization, which no flat score can be unless "
        "the weights were adapted in between"
    )
    # A sliding window takes longer than a flat pass, and its gain has a limit. Anything else stays as tagged, with its
    # doubt.
    is_slow = score.seconds is not None and score.seconds >= SLOW_SECONDS
    return replace(score, kind=SLIDING if (is_slow and gain <= SLIDING_GAIN_BPB) else score.kind, doubt=doubt)


def _mixed_if_shown(score: LoggedScore, flat: LoggedScore | None, pre_quant_bpb: float | None) -> LoggedScore:
    """Return a sliding score as `mixed` if it gains too much: such gains come from a cache or a mixture."""
    against = flat.val_bpb if flat is not None and flat.is_finite else pre_quant_bpb
    if against is None or not score.is_finite or against - score.val_bpb <= SLIDING_GAIN_BPB:
        return score
    below = f"{base_tag(score.tag)} is {against - score.val_bpb:.4f} below the flat score"
    return replace(score, kind=MIXED, doubt=f"{below}: more than a sliding window gives")
