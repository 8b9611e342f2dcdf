"""The season: everything that was compared with one reference, in any sweep of the run store, as one stream of tests.

Each sweep keeps its level, and nine sweeps against one baseline err in 0.2 of cases. Over the stream the share of false
ones among all that is called better stays below the rule's level.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from golf.errors import GolfError
from golf.lab.report.findings import Findings, judged, variant_name
from golf.lab.report.losses import p_better
from golf.lab.report.rows import row_of
from golf.lab.report.store import RowOf, index_runs, other_records
from golf.lab.report.study import reference_of_record, study_of_record
from golf.lab.report.variants import Variant
from golf.lab.report.verdicts import BETTER, margin_bpb
from golf.settings.config import RulesConfig

NOT_SHOWN = "not shown"  # to be better over the season
EXPONENT = 1.6  # share of the level of the j-th test after a discovery, as 1 / j ** EXPONENT
SUM_OF_SHARES = 2.2858  # of 1 / j ** 1.6 over all j


Try = tuple[str, frozenset[int | None]]  # id of a variant and its seeds: judged again on these or fewer it is no other


@dataclass(frozen=True)
class Place:
    """The place of a comparison in the season, and what is said of it there."""

    number: int  # of the oldest one is 1
    of: int
    is_better: bool

    def __str__(self) -> str:
        return f"{BETTER if self.is_better else NOT_SHOWN} ({self.number} of {self.of})"

    @property
    def values(self) -> dict[str, Any]:
        """Return the place for programs."""
        word = BETTER if self.is_better else NOT_SHOWN
        return {"verdict": word.replace(" ", "_"), "number": self.number, "of": self.of}


def season(reference: str, root: Path, rules: RulesConfig, row_of: RowOf = row_of, **options: Any) -> dict[Try, Place]:
    """Return the places of all that was compared with the variant `reference` in the sweeps of a root, oldest first.

    `row_of` reads the row of a run folder, and `options` are those of `judged`.
    """
    index, read = index_runs(root), functools.cache(row_of)
    p_values: dict[Try, float] = {}
    for record in sorted(other_records((), root), key=lambda record: str(record.get("created", ""))):
        if reference_of_record(record) != reference:
            continue
        # A sweep that cannot be judged has no comparisons.
        with contextlib.suppress(GolfError):
            findings = judged(study_of_record(record, index, read), rules, **options)
            for variant in findings.study.variants:
                if (p := p_alone(findings, variant)) is not None and try_of(variant, p_values) is None:
                    p_values[variant.id, _seeds(variant)] = p
    found = discoveries(list(p_values.values()), rules.alpha)
    places = enumerate(zip(p_values, found, strict=True), start=1)
    return {one: Place(number, len(p_values), is_found) for number, (one, is_found) in places}


def try_of(variant: Variant, tries: Iterable[Try]) -> Try | None:
    """Return the first of `tries` that has all runs of the variant; None if it is none of them."""
    return next((one for one in tries if one[0] == variant.id and one[1] >= _seeds(variant)), None)


def _seeds(variant: Variant) -> frozenset[int | None]:
    return frozenset(row.seed for row in variant.rows)


def places_of(findings: Findings) -> dict[str, Place]:
    """Return the places of a table's variants by id, in the season of their reference."""
    study, reference = findings.study, findings.reference
    if not isinstance(reference, Variant) or (root := study.root) is None:
        return {}
    found = season(reference.id, root, findings.rules, study.row_of, score=findings.score, sigma=findings.sigma)
    return {v.id: found[one] for v in study.variants if (one := try_of(v, found))}


def about_season(findings: Findings, places: Mapping[str, Place]) -> Iterator[str]:
    """Say what is better over the season, if it has more than this table or calls less better."""
    of = max((place.of for place in places.values()), default=0)
    loses = any(findings.verdicts[id].kind == BETTER and not place.is_better for id, place in places.items())
    if of <= len(places) and not loses:
        return
    told = [
        f"{variant_name(findings, v)} {places[v.id]}"
        for v in findings.variants
        if v.id in places and (places[v.id].is_better or findings.verdicts[v.id].kind == BETTER)
    ]
    said = ", ".join(told) or "none of these is better"
    yield f"Over the season of {of} comparisons with {findings.reference_name} (golf ledger): {said}."


def discoveries(p_values: Sequence[float], level: float) -> list[bool]:
    """Tell for each p, in the order of the tests, whether it is a discovery: LORD++ (Ramdas, Yang, Wainwright and
    Jordan 2017, "Online control of the false discovery rate with decaying memory").

    Each test spends a part of the level, and each discovery earns some of it back. `bench.seasons` has the choice: of
    100 candidates against three or five shared runs of a reference LORD++ keeps the false discovery rate at 0.00 to
    0.05, finds more than a level that is spent once, and SAFFRON, which finds more, errs in 0.05 to 0.09.
    """
    found: list[int] = []
    for at, p in enumerate(p_values):
        # Half of the level is there at the start, and the first discovery earns the other half.
        earned = [(level if n else level / 2, at - when) for n, when in enumerate(found)]
        if p <= sum(part * after**-EXPONENT for part, after in [(level / 2, at + 1), *earned]) / SUM_OF_SHARES:
            found.append(at)
    return [at in found for at in range(len(p_values))]


def p_alone(findings: Findings, variant: Variant) -> float | None:
    """Return the one-sided p that the variant is better, of this comparison alone; None if it was not compared.

    That of a sweep in rounds is the one over its looks, which is corrected for the sweep, too.
    """
    verdict = findings.verdicts.get(variant.id)
    if verdict is None or verdict.comparison is None or not isinstance(reference := findings.reference, Variant):
        return None
    if findings.looks is not None:
        return verdict.p if verdict.comparison.difference < 0 else 1.0
    margin = margin_bpb(variant, reference, findings.rules)
    return p_better(verdict.comparison, variant, reference, findings.score, margin)
