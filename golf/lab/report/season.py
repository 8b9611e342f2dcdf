"""The season: everything that was compared with one reference, in any sweep of the run store, as one stream of tests.

Each sweep keeps its level, and nine sweeps against one baseline err in 0.2 of cases. Over the stream the share of false
ones among all that is called better stays below the rule's level.
"""

from __future__ import annotations

from collections.abc import Sequence

from golf.lab.report.findings import Findings
from golf.lab.report.losses import p_better
from golf.lab.report.variants import Variant
from golf.lab.report.verdicts import margin_bpb

EXPONENT = 1.6  # share of the level of the j-th test after a discovery, as 1 / j ** EXPONENT
SUM_OF_SHARES = 2.2858  # of 1 / j ** 1.6 over all j


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
