"""The table that `-m` ends with: the jobs of this command as variants, in the same form as every report."""

from __future__ import annotations

from collections.abc import Sequence

from golf.config import RulesConfig
from golf.report.findings import judged
from golf.report.results import results_table
from golf.report.rows import RunRow, row_of_result
from golf.report.study import Study
from golf.report.table import render
from golf.report.variants import Variant
from golf.run.result import Result, to_json

REFUSED = "refused"  # a job whose configuration cannot be
Job = tuple[Sequence[str], Result | None, str]  # overrides, result, error


def print_sweep(jobs: Sequence[Job], rules: RulesConfig) -> None:
    """One row a variant, the first job's being the reference; a job that was refused says why."""
    print(render(results_table(judged(study_of(jobs), rules)), "text"), end="")


def study_of(jobs: Sequence[Job]) -> Study:
    """The jobs of a command as variants, called by what they do not have in common."""
    common = set.intersection(*(set(overrides) for overrides, _, _ in jobs))
    rows: dict[str, list[RunRow]] = {}
    labels: dict[str, str] = {}
    for number, (overrides, result, error) in enumerate(jobs, start=1):
        row = _refused(number, error) if result is None else row_of_result(to_json(result))
        rows.setdefault(row.variant, []).append(row)
        own = [o for o in overrides if o not in common and not o.startswith("seed=")]
        labels.setdefault(row.variant, " ".join(own) or row.name)
    variants = tuple(Variant(id, labels[id], tuple(found)) for id, found in rows.items())
    return Study("this sweep", variants, variants[0] if len(variants) > 1 else None)


def _refused(number: int, error: str) -> RunRow:
    return RunRow(f"job {number}", f"job {number}", state=REFUSED, reason=error)
