"""The table at the end of a sweep. `golf report` prints the same table from the sweep's record at any time."""

from __future__ import annotations

from collections.abc import Sequence

from golf.report.findings import judged
from golf.report.results import results_table
from golf.report.rows import row_of_result
from golf.report.store import find_record
from golf.report.study import Study, read_study, refused_variant
from golf.report.table import render
from golf.report.variants import Variant
from golf.run.folder import runs_root
from golf.run.result import Result, to_json
from golf.settings.config import RulesConfig

Job = tuple[Sequence[str], Result | None, str]  # overrides, result, error


def print_sweep(name: str, jobs: Sequence[Job], rules: RulesConfig) -> None:
    """Print the table of the sweep `name`, from its record or, if there is none, from this process's `jobs`."""
    is_recorded = find_record(name, runs_root()) is not None
    study = read_study([name]) if is_recorded else study_of(name, jobs)
    print(render(results_table(judged(study, rules)), "text"), end="")
    if is_recorded:
        print(f"Again, or as a page: golf report {name} --html report.html")


def study_of(name: str, jobs: Sequence[Job]) -> Study:
    """Return the jobs as a study; labels are the overrides that not all jobs have in common."""
    common = set.intersection(*(set(overrides) for overrides, _, _ in jobs))
    found: dict[str, Variant] = {}
    for overrides, result, error in jobs:
        label = " ".join(o for o in overrides if o not in common and not o.startswith("seed="))
        if result is None:
            variant = refused_variant(len(found), label, error)
        else:
            # Through JSON, so that a row has the same values as one read from the run's folder.
            row = row_of_result(to_json(result))
            before = found[row.variant].rows if row.variant in found else ()
            variant = Variant(row.variant, label or row.name, (*before, row))
        found[variant.id] = variant
    variants = tuple(found.values())
    return Study(name, variants, variants[0] if len(variants) > 1 else None)
