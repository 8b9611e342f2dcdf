"""Comparison of two variants, or of a variant with a published score: what compares, and by which test.

A published score is a mean of few runs, whose noise counts as much as that of one's own runs.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from golf.errors import GolfError
from golf.lab.report.blocks import Blocks
from golf.lab.report.machines import by_machine, check_machines
from golf.lab.report.rows import OWN
from golf.lab.report.statistics import Comparison, is_constant, known_sigma, one_sample, paired, welch
from golf.lab.report.texts import OLDER_SCORES, OWN_TEXT, PUBLISHED_ON, shown_text
from golf.lab.report.variants import SCORES, WAYS, Variant
from golf.run.code import THEN
from golf.words import listed

CODE_MAY_BE = "a difference may be the code's"  # end of the reason where edits were made between runs
NOT_COMPARABLE = "not comparable"


@dataclass(frozen=True)
class PublishedNoise:
    """How many runs a published score is the mean of, and how much they scatter."""

    runs: int = 1
    sd: float | None = None  # bits per byte; None if they scatter as the runs that are compared with them

    def __str__(self) -> str:
        scatter = "as these do" if self.sd is None else f"by {self.sd:g} bpb"
        return f"the mean of {self.runs} runs that scatter {scatter}" if self.runs > 1 else f"one run, {self._one()}"

    def _one(self) -> str:
        return "with the noise of these" if self.sd is None else f"with a standard deviation of {self.sd:g} bpb"

    def factor(self, sd: float, count: int) -> float:
        """Return by how much the noise grows over that of a mean of `count` runs with standard deviation `sd`."""
        return math.sqrt(1 + count / self.runs * (1.0 if self.sd is None else (self.sd / sd) ** 2))

    def added_to(self, comparison: Comparison, count: int) -> Comparison:
        """Return a comparison of `count` runs with an exact score as one with the mean of noisy runs.

        A given standard deviation is known, so that the degrees of freedom grow (Satterthwaite 1946).
        """
        own = comparison.standard_error**2
        other = own * count / self.runs if self.sd is None else self.sd**2 / self.runs
        error = math.sqrt(own + other)
        is_known = self.sd is not None and not math.isinf(comparison.df)
        df = comparison.df * ((own + other) / own) ** 2 if is_known else comparison.df
        return replace(comparison, standard_error=error, df=df)


def compare(
    variant: Variant,
    reference: Variant | float,
    *,
    score: str = "final",
    sigma: float | None = None,
    published: PublishedNoise | None = None,
    among: Blocks | None = None,
) -> Comparison:
    """Compare by the test that fits: paired for shared checkpoints, one-sample for a published score, else that of all
    runs `among` which the two are, or Welch's.

    `published` is the noise of a published score; without it the score is taken as exact. Raises `GolfError` with the
    reason if no test fits.
    """
    # Seeds on several texts have no common score, and this says why.
    check_comparable(variant, reference, score)
    check_code(variant, reference)
    scores = _scores(variant, score)
    if not isinstance(reference, Variant):
        comparison = _with_few_seeds(scores, reference, sigma) or one_sample(scores, reference)
        return published.added_to(comparison, len(scores)) if published else comparison
    of_reference = _scores(reference, score, "the reference has ")
    if are_pairs(variant, reference):
        both = [{f"seed {r.seed}": getattr(r, SCORES[score]) for r in v.scored(score)} for v in (variant, reference)]
        return paired(*both)
    # A pair shares its training. Separate trainings under a clock depend on the machine.
    check_machines(variant, reference)
    fitted = _with_few_seeds(scores, of_reference, sigma) or (among and among.compare(variant, reference))
    return fitted or by_machine(variant, reference, score) or welch(scores, of_reference)


def blocks_of(variants: Sequence[Variant], reference: Variant | float, score: str) -> Blocks | None:
    """Return the runs of the variants that compare with the reference, itself included, for `compare`."""
    if not isinstance(reference, Variant):
        return None

    alike = [reference]
    for variant in variants:
        # Formats of the same checkpoints share their training, which one of them tells.
        if any(variant is other or are_pairs(variant, other) for other in alike):
            continue
        with contextlib.suppress(GolfError):
            check_comparable(variant, reference, score)
            check_code(variant, reference)
            alike.append(variant)
    return Blocks(alike, score)


def are_pairs(variant: Variant, reference: Variant) -> bool:
    """Tell whether the runs are the same checkpoints scored or quantized in two ways.

    The score before quantization identifies a checkpoint: it is the same to the last digit only for the same weights.
    A seed alone makes no pair: what its runs share is a matter of scale, which `Blocks` tells by the scores.
    """
    before, other = ({row.seed: row.pre_quant_bpb for row in v.counted} for v in (variant, reference))
    return before == other and None not in before.values()


def _scores(variant: Variant, score: str, whose: str = "") -> list[float]:
    if not (scores := variant.scores(score)):
        raise GolfError(f"{whose}no {score} score" if variant.counted else f"{whose}no run that counts")
    return scores


def _with_few_seeds(scores: list[float], reference: list[float] | float, sigma: float | None) -> Comparison | None:
    """Compare by the given `sigma`; None without one or if the samples have a standard deviation of their own."""
    samples = [scores] if isinstance(reference, float) else [scores, reference]
    # Scores that are all equal have a standard deviation of zero, which is no estimate of the noise.
    has_own = all(len(x) > 1 for x in samples) and not all(map(is_constant, samples))
    return None if sigma is None or has_own else known_sigma(scores, reference, sigma)


def check_comparable(variant: Variant, reference: Variant | float, score: str) -> None:
    """Raise `GolfError` if the scores belong to different texts or were taken in different ways."""
    _check_one_text(variant, "its")
    if not isinstance(reference, Variant):
        return
    _check_one_text(reference, "the reference's")
    if variant.texts and reference.texts and variant.texts != reference.texts:
        texts = [shown_text(next(iter(v.texts))) for v in (variant, reference)]
        remedy = _remedy([variant, reference])
        raise GolfError(f"{NOT_COMPARABLE}: another text than the reference's: {texts[0]}, not {texts[1]}{remedy}")
    mine, other = (v.known(WAYS[score]) if score in WAYS else set() for v in (variant, reference))
    # An unknown way of scoring agrees with every other.
    if mine and other and len(mine | other) > 1:
        ways = [" and ".join(sorted(of_side)) for of_side in (mine, other)]
        raise GolfError(f"{NOT_COMPARABLE}: scored by {ways[0]}, not {ways[1]}")


def _remedy(variants: Sequence[Variant]) -> str:
    """Return how runs of several tokenizers on one text come to compare, if this may be such a case."""
    rows = [row for variant in variants for row in variant.counted]
    by_fingerprint = all(row.source == OWN and row.data and " " not in row.data for row in rows)
    return " (eval.documents=true scores one text alike, whatever the tokenizer)" if by_fingerprint else ""


def texts_besides(variants: Sequence[Variant], text: str) -> str:
    """Return the texts that the variants are scored on besides `text`, in words; empty if it is the only one."""
    return " and ".join(sorted({shown_text(other) for variant in variants for other in variant.texts - {text}}))


def check_published_text(variants: Sequence[Variant], published: float, text: str | None) -> None:
    """Check that the variants are scored on the text of a `published` score; `text` is a key of `PUBLISHED_ON`.

    None stands for FineWeb. Raises `GolfError`, which says what to type, if the variants are not scored on it, if a run
    does not tell its text, or for None and a score that is known to be of the older export.
    """
    if text is None and published in OLDER_SCORES:
        raise GolfError(
            f"{published:g} is a score on {PUBLISHED_ON['older']}; on today's split it is {OLDER_SCORES[published]:g}: "
            "give that one, or say which text is meant (--text older, fineweb or own)."
        )
    text = text or "fineweb"
    scored = texts_besides(variants, PUBLISHED_ON[text])
    if text == OWN_TEXT or not scored:
        return
    choices = "; ".join(f"--text {key} for {name}" for key, name in PUBLISHED_ON.items() if key not in (text, OWN_TEXT))
    raise GolfError(
        f"{published:g} is taken as a score on {PUBLISHED_ON[text]}, and these runs were scored on {scored}: say of "
        f"which text it is (--text {OWN_TEXT} for the text of these runs; {choices})."
    )


def check_code(variant: Variant, reference: Variant | float) -> None:
    """Raise `GolfError` if several versions of golf's code ran, also if one began a run and another finished it."""
    sides = [variant, reference] if isinstance(reference, Variant) else [variant]
    codes = {code for side in sides for code in side.known("code_digest")}
    if len(codes) > 1 or THEN in "".join(codes):
        raise GolfError(f"the code that ran is {listed(sorted(codes))}: {CODE_MAY_BE}")


def _check_one_text(variant: Variant, whose: str) -> None:
    if None in variant.texts and len(variant.texts) > 1:
        raise GolfError(f"{NOT_COMPARABLE}: not all of {whose} seeds tell which text they were scored on")
    if len(variant.texts) > 1:
        raise GolfError(f"{NOT_COMPARABLE}: {whose} seeds were scored on {len(variant.texts)} texts")


def why_not_alike(variants: Sequence[Variant], score: str) -> str:
    """Return why no one published score fits all variants: they differ in text or way of scoring. Empty if one does."""
    if len(variants) < 2:
        return ""
    texts = {text for variant in variants for text in variant.texts}
    if None in texts and len(texts) > 1:
        return f"{NOT_COMPARABLE}: not all variants tell which text they are scored on, a published score is of one"
    if len(texts) > 1:
        return f"{NOT_COMPARABLE}: the variants are scored on {len(texts)} texts, a published score on one"
    ways = {way for variant in variants for way in variant.known(WAYS[score])} if score in WAYS else set()
    if len(ways) > 1:
        return f"{NOT_COMPARABLE}: the variants are scored in {len(ways)} ways, a published score in one"
    return ""


def published_noise(against: float | None, runs: int | None, sd: float | None) -> PublishedNoise | None:
    """Return the noise that was given for a published score; None without any. Raises `GolfError` for no such thing."""
    if runs is None and sd is None:
        return None
    if against is None:
        raise GolfError("--against-n and --against-sigma tell the noise of a published score: give it with --against.")
    if runs is not None and runs < 1:
        raise GolfError(f"--against-n {runs} cannot be a number of runs: give 1 or more.")
    return PublishedNoise(runs or 1, sd)
