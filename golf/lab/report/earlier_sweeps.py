"""Earlier sweeps whose runs count again: whoever was chosen there by its score was also lucky there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from golf.lab.report.store import seeds_asked
from golf.lab.report.variants import Variant
from golf.lab.report.verdicts import ranking
from golf.settings.config import RulesConfig
from golf.words import counted, listed

FEWEST_VARIANTS = 3  # of fewer, none was chosen: there is one beside the reference
FEWEST_FRESH = 2  # seeds with a standard deviation of their own
Record = Mapping[str, Any]
Reader = Callable[[str, set[int]], Variant]  # variant id and seeds → the variant with its runs


def with_rivals(
    variants: Sequence[Variant], reference: str, earlier: Sequence[Record], read: Reader, rounds: Collection[int]
) -> tuple[tuple[Variant, ...], list[str]]:
    """Return the variants with their rivals in the `earlier` sweeps, by runs that count again, and a sentence on each.

    `reference` is the id of the reference. It goes without the runs by which it was the best there if others were tied
    with it, two other seeds of it count, and no plan needs the runs. `rounds` are the seeds of such a plan.
    """
    by_id, said = {v.id: v for v in variants}, []
    for record in earlier:
        asked, again = seeds_asked(record), runs_again(by_id.values(), record, rounds)
        # Where all others are judged here, too, they are counted already, and only the choice of the reference tells.
        is_chosen = reference in again or not asked.keys() <= {*by_id, first_variant(record)}
        if not again or len(asked) < FEWEST_VARIANTS or not is_chosen:
            continue
        before = [v for id, seeds in asked.items() if (v := read(id, seeds)).mean("final") is not None]
        ranked = ranking(before, RulesConfig(), {}, None)
        best = ranked.best.id if ranked.best else ""
        where = f"of {len(before)} in the sweep {record['name']}"
        # Whoever beat all others was not chosen by luck.
        if reference == best and best in again and len(ranked.unbeaten) > 1 and not rounds:
            fresh = replace(by_id[best], rows=tuple(r for r in by_id[best].rows if r.seed not in asked[best]))
            if len(fresh.counted) >= FEWEST_FRESH:
                said.append(f"The reference was the best {where}: its runs there may have been lucky and do not count.")
                by_id[best] = fresh
                again.remove(best)
        rivals = tuple(v for v in before if v.id != first_variant(record))
        by_id |= {id: replace(by_id[id], rivals=by_id[id].rivals + rivals) for id in again}
        more = sum(rival.id not in by_id for rival in rivals)
        if again and (more or reference == best in again):
            names = {id: "The reference" if id == reference else by_id[id].label for id in again}
            who = f"{names[best]} was the best" if best in again else f"{listed([*names.values()])}: chosen out"
            count = f" p counts {counted(more, 'more variant')} of it as comparisons." if more else ""
            said.append(f"{who} {where}, by runs that count here again: give it fresh seeds.{count}")
    return tuple(by_id.values()), said


def runs_again(variants: Collection[Variant], record: Record, rounds: Collection[int] = ()) -> list[str]:
    """Return the ids of the variants whose runs in the sweep count again, now or in a plan's rounds.

    The sweep's reference was not chosen for its score and is not among them.
    """
    asked, first = seeds_asked(record), first_variant(record)
    return [v.id for v in variants if v.id != first and asked.get(v.id, set()) & {*rounds, *(r.seed for r in v.rows)}]


def first_variant(record: Record) -> str:
    """Return the id of the variant that a sweep compares the others with; empty for a sweep without one, or no runs."""
    reference = record.get("reference")
    return next(iter(seeds_asked(record)), "") if reference is None else str(reference)
