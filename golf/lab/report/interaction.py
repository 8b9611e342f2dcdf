"""Say whether two changes add up: their contrast, both − one − the other + none, where a sweep has run all four."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from golf.lab.report.changes import change
from golf.lab.report.comparison import blocks_of
from golf.lab.report.findings import Findings
from golf.lab.report.variants import Variant
from golf.words import as_override, counted, interval_text, signed

MOST_SHOWN = 3  # pairs of changes, those that are best together
Moves = frozenset[tuple[str, str]]  # what a change does: a technique or a setting, and what becomes of it


def about_interactions(findings: Findings) -> Iterator[str]:
    """Yield a sentence for each pair of changes whose runs alone and together tell an interaction.

    Sweeps in rounds have none: their rounds end by what differs from the reference, which moves the contrast, too.
    """
    reference = findings.reference
    if not isinstance(reference, Variant) or findings.looks is not None:
        return
    differences = {id: v.comparison.difference for id, v in findings.verdicts.items() if v.comparison}
    compared = [v for v in findings.variants if v.id in differences and v is not reference and not v.lost]
    pairs = list(_pairs(reference, compared))
    blocks = blocks_of(findings.variants, reference, findings.score) if pairs else None
    confidence = 1 - (1 - findings.rules.confidence) / max(1, len(pairs))  # Bonferroni
    for one, other, both in pairs[:MOST_SHOWN]:
        factors = {both.id: 1.0, one.id: -1.0, other.id: -1.0, reference.id: 1.0}
        if blocks is None or not (contrast := blocks.contrast(factors)):
            continue
        low, high = contrast.interval(confidence)
        found = "they overlap" if low > 0 else "together they do more" if high < 0 else "no interaction is shown"
        names = " and ".join(str(change(reference.settings, v.settings)) for v in (one, other))
        alone = " and ".join(signed(differences[v.id]) for v in (one, other))
        of_all = f", {confidence:.1%} for {counted(len(pairs), 'pair')}" if len(pairs) > 1 else ""
        yield (
            f"{names}: {alone} bpb alone, {signed(differences[both.id])} together, {signed(contrast.difference)} "
            f"beside their sum ({interval_text((low, high))}{of_all}): {found}."
        )


def _pairs(reference: Variant, variants: Sequence[Variant]) -> Iterator[tuple[Variant, Variant, Variant]]:
    """Yield two changes of the reference and their sum, for each sum that ran, in the order of the sums."""
    by_moves = {moves: v for v in variants if v.settings and (moves := _moves(reference, v))}
    for moves, both in by_moves.items():
        for first, second in itertools.combinations(by_moves, 2):
            one, other = by_moves[first], by_moves[second]
            # The settings that a technique brings have to be the same alone and beside the other change.
            fits = _moves(one, both) == second and _moves(other, both) == first
            if fits and not first & second and first | second == moves:
                yield one, other, both


def _moves(before: Variant, after: Variant) -> Moves:
    made = change(before.settings, after.settings)
    techniques = [(name, what) for what in ("removed", "added") for name in getattr(made, what)]
    return frozenset([*techniques, *((key, as_override(value)) for key, value in made.settings.items())])
