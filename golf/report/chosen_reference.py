"""A reference that was chosen as the best of an earlier sweep: its runs there were lucky, so that others look worse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from golf.report.store import index_runs, latest_row, other_records, seed_of, seeds_asked
from golf.report.variants import Variant

FEWEST_VARIANTS = 3  # the better of two is less often a lucky one
FEWEST_FRESH = 2  # seeds with a standard deviation of their own


def fresh_reference(
    reference: Variant, records: Sequence[Mapping[str, Any]], root: Path, *, is_planned: bool
) -> tuple[Variant, str]:
    """Return the reference without the runs by which it was chosen as a best, and a sentence about them.

    `records` are those of the study. The sentence is empty if the reference was not chosen. The runs stay, and the
    sentence says so, where fewer than two others count or where a plan of rounds needs them.
    """
    mine = {str(record["name"]) for record in records}
    created = min((str(record.get("created", "")) for record in records), default="")
    earlier = [r for r in other_records(mine, root) if created and str(r.get("created", "")) < created]
    for record in earlier:
        seeds = seeds_asked(record).get(reference.id, set()) & {row.seed for row in reference.rows}
        others = len(seeds_asked(record))
        # Whoever was the reference then was not chosen for its score.
        was_reference = reference.id == (record.get("reference") or next(iter(seeds_asked(record))))
        if not seeds or was_reference or others < FEWEST_VARIANTS or _best_of(record, root) != reference.id:
            continue
        fresh = replace(reference, rows=tuple(row for row in reference.rows if row.seed not in seeds))
        chosen = f"The reference was the best of {others} in the sweep {record['name']}"
        if len(fresh.counted) >= FEWEST_FRESH and not is_planned:
            return fresh, f"{chosen}: its {len(seeds)} runs there were lucky and do not count, its other seeds do."
        return reference, f"{chosen}, by runs that count here again and were lucky: give it fresh seeds."
    return reference, ""


def _best_of(record: Mapping[str, Any], root: Path) -> str:
    """Return the id of the variant with the lowest mean score in the sweep; empty without one."""
    index, means = index_runs(root), {}
    for id, seeds in seeds_asked(record).items():
        folders = [[f for f in index.get(id, []) if seed_of(f) == seed] for seed in sorted(seeds)]
        variant = Variant(id, id, tuple(latest_row(attempts) for attempts in folders if attempts))
        if (mean := variant.mean("final")) is not None:
            means[id] = mean
    return min(means, key=lambda id: means[id]) if means else ""
