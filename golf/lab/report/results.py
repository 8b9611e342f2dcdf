"""The table of results: one row for each variant, best first. A sweep prints it at its end, `golf report` any time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from golf.lab.report.changes import settings_that_differ
from golf.lab.report.findings import Findings, judged, score_title, variant_name
from golf.lab.report.origin import parts_for_programs
from golf.lab.report.remarks import remarks_on
from golf.lab.report.rows import RunRow, row_of_result
from golf.lab.report.season import Place, about_season, places_of
from golf.lab.report.store import find_record
from golf.lab.report.study import Study, read_study, refused_variant
from golf.lab.report.table import FOR_PROGRAMS, Column, Table, render, values_of
from golf.lab.report.variants import Variant
from golf.lab.report.verdicts import BETTER, IMPROVED, WORSE, Verdict
from golf.run.folder import runs_root
from golf.run.result import OK, Result, to_json
from golf.settings.config import RulesConfig
from golf.words import counted, interval_text, signed, significant

BEST, TIED, NOT_TESTED = "best", "tied", "not tested"  # ranks; a variant shown to be worse than the best has none
IN_CSV = (Column("variant_id", "", in_text=False), Column("seeds", "", in_text=False))
REFERENCE = "reference"  # in place of its verdict
SMALLEST_P = 1e-4  # smaller values are shown as `<0.0001`
Job = tuple[Sequence[str], Result | None, str]  # overrides, result, error
COLOURS = {BETTER: "green", WORSE: "red"}  # of verdicts on a terminal
MOST_SHOWN = 6  # columns of settings in a table for people; CSV has all of them
FIRST_SPARE = 20  # narrow terminals drop these columns before any other


def print_sweep(name: str, jobs: Sequence[Job], rules: RulesConfig) -> dict[str, Any]:
    """Print the table of the sweep `name`, from its record or, if there is none, from this process's `jobs`.

    Return its values for programs.
    """
    is_recorded = find_record(name, runs_root()) is not None
    study = read_study([name]) if is_recorded else study_of(name, jobs)
    table = results_table(judged(study, rules))
    print(render(table, "text"), end="")
    if is_recorded:
        print(f"Again, or as a page: golf report {name} --html report.html")
    return {"sweep": name, **values_of(table)}


def study_of(name: str, jobs: Sequence[Job]) -> Study:
    """Return the jobs as a study; labels are the overrides that not all jobs have in common."""
    common = set.intersection(*(set(overrides) for overrides, _, _ in jobs))
    by_id: dict[str, Variant] = {}
    for overrides, result, error in jobs:
        label = " ".join(o for o in overrides if o not in common and not o.startswith("seed="))
        if result is None:
            variant = refused_variant(len(by_id), label, error)
        else:
            # Through JSON, so that a row has the same values as one read from the run's folder.
            row = row_of_result(to_json(result))
            before = by_id[row.variant].rows if row.variant in by_id else ()
            variant = Variant(row.variant, label or row.name, (*before, row))
        by_id[variant.id] = variant
    variants = tuple(by_id.values())
    return Study(name, variants, variants[0] if len(variants) > 1 else None)


def results_table(findings: Findings) -> Table:
    """Return means over the runs that count; the column `state` names every other run with its reason."""
    settings, values = settings_columns(findings.variants, labelled=findings.study.labelled)
    places = places_of(findings)
    rows = [{**values.get(v.id, {}), **result_row(findings, v, places.get(v.id))} for v in findings.variants]
    runs = sum(len(v.rows) for v in findings.study.variants)
    title = f"{findings.study.title}: {counted(len(rows), 'variant')}, {counted(runs, 'run')}"
    variant, verdict, *others = _columns(findings)
    notes = (*remarks_on(findings), *about_season(findings, places))
    return Table((variant, verdict, *IN_CSV, *settings, *others), rows, title, notes)


def settings_columns(variants: Sequence[Variant], *, labelled: bool) -> tuple[list[Column], dict[str, dict[str, str]]]:
    """Return a column for each setting that differs, and its values by variant id.

    People see the first few unless the variants are `labelled` with them, as those of a sweep are. Variants that have
    not started have the values that their sweep gives them, and imported ones have none.
    """
    known = settings_that_differ({v.id: v.settings for v in variants if v.settings})
    # A choice from a group is no setting: what it sets differs, and is not known before a run starts.
    given = {v.id: {key: value for key, value in v.values.items() if "." in key} for v in variants}
    values = {id: {**given[id], **known.get(id, {})} for id in given}
    differ = sorted({key for settings in values.values() for key in settings}, key=lambda key: (key != "tech", key))
    # What a selected technique sets is said by its name, and a name is no setting that acts.
    shown = [key for key in differ if not key.startswith("tech.") and not key.endswith(".name")]
    shown = [] if labelled else shown[:MOST_SHOWN]
    numbered = enumerate(differ, FIRST_SPARE)
    return [Column(key, key, is_text=True, in_text=key in shown, spare=spare) for spare, key in numbered], values


def _columns(findings: Findings) -> tuple[Column, ...]:
    confidence = f"{findings.rules.confidence:.0%}"
    return (
        Column("variant", " ".join(findings.study.swept) or "variant", is_text=True),
        Column("verdict", "verdict", is_text=True, style=lambda cell: COLOURS.get(cell.partition(":")[0], "")),
        Column("mean_bpb", score_title(findings), "{:.4f}".format, spare=1),
        Column("sd_bpb", "sd", lambda sd: significant(sd, 5), spare=9),
        Column("n", "n", spare=4),
        Column("rank", "rank", is_text=True, spare=5),
        Column("pre_quant_bpb", "pre-quant bpb", "{:.4f}".format, spare=13),
        Column("difference_bpb", "Δ bpb", signed, spare=2),
        Column("difference_nats_per_token", "Δ nats/token", signed, spare=7),
        Column("interval_bpb", f"{confidence} interval of Δ bpb", interval_text, in_csv=False, spare=14),
        Column("interval_low_bpb", "", in_text=False),
        Column("interval_high_bpb", "", in_text=False),
        Column("p", "p", shown_p, spare=8),
        Column("total_bytes", "largest bytes", "{:,.0f}".format, spare=6),
        Column("steps", "steps", "{:,.0f}".format, spare=12),
        Column("step_ms", "step ms", "{:.1f}".format, spare=10),
        Column("train_seconds", "train s", "{:.1f}".format, spare=11),
        Column("cpu_seconds", "CPU s", "{:.1f}".format, spare=15),
        Column("state", "state", is_text=True, spare=3, style=lambda cell: "" if cell.startswith(OK) else "yellow"),
    )


def result_row(findings: Findings, variant: Variant, place: Place | None = None) -> dict[str, Any]:
    """Return the values of a variant by column key; scores in bits per byte, None for what is unknown.

    `place` is the variant's in the season.
    """
    verdict = findings.verdicts.get(variant.id)
    comparison = verdict.comparison if verdict else None
    interval = comparison.interval(findings.rules.confidence) if comparison else None
    return {
        FOR_PROGRAMS: {**for_programs(findings, variant), "season": place.values if place else None},
        "variant": variant_name(findings, variant),
        "variant_id": variant.id,
        "seeds": " ".join(str(row.seed) for row in variant.rows if row.seed is not None),
        "mean_bpb": variant.mean(findings.score),
        "sd_bpb": variant.sd(findings.score),
        "n": len(variant.scores(findings.score)),
        "rank": _rank(findings, variant),
        "pre_quant_bpb": variant.mean("pre_quant") if findings.score != "pre_quant" else None,
        "difference_bpb": verdict.difference_bpb if verdict else None,
        "difference_nats_per_token": verdict.difference_nats if verdict else None,
        "interval_bpb": interval,
        "interval_low_bpb": interval[0] if interval else None,
        "interval_high_bpb": interval[1] if interval else None,
        "p": verdict.p if verdict else None,
        "verdict": shown_verdict(findings, variant, verdict),
        # The largest seed has to fit under the cap.
        "total_bytes": max((r.total_bytes for r in variant.counted or variant.rows if r.total_bytes), default=None),
        "steps": _mean(variant, "steps"),
        "step_ms": _mean(variant, "step_ms"),
        "train_seconds": _mean(variant, "train_seconds"),
        "cpu_seconds": _mean(variant, "cpu_seconds"),
        "state": shown_state(variant.rows),
    }


def _rank(findings: Findings, variant: Variant) -> str:
    ranking = findings.ranking
    if variant is ranking.best:
        return BEST
    if variant.id in ranking.tied:
        return TIED
    verdict = findings.verdicts.get(variant.id)
    is_tested = variant.id in ranking.tested or (verdict is not None and verdict.kind == WORSE)
    # A best variant that is better than the reference was tested against it.
    of_best = findings.verdicts.get(ranking.best.id) if ranking.best and variant is findings.reference else None
    is_tested |= of_best is not None and of_best.kind in IMPROVED
    return "" if is_tested or variant.mean(findings.score) is None else NOT_TESTED


def shown_verdict(findings: Findings, variant: Variant, verdict: Verdict | None) -> str:
    """Return the verdict with its reason; empty for a variant that was compared with nothing."""
    if variant is findings.reference:
        return REFERENCE
    if verdict is None:
        return ""
    return f"{verdict.kind}: {verdict.reason}" if verdict.reason else verdict.kind


def for_programs(findings: Findings, variant: Variant) -> dict[str, Any]:
    """Return the values of a variant that people read as sentences: one word each, and the reasons beside it."""
    verdict, states = findings.verdicts.get(variant.id), Counter(row.state for row in variant.rows)
    word = REFERENCE if variant is findings.reference else verdict.kind if verdict else None
    return {
        "verdict": word and word.replace(" ", "_"),
        "verdict_reason": (verdict and verdict.reason) or None,
        "is_decided": None if findings.looks is None or not verdict else variant.id not in findings.active,
        "rank": _rank(findings, variant).replace(" ", "_") or None,
        "parts": parts_for_programs(findings, variant),
        "seeds": [row.seed for row in variant.rows],
        "state": next(iter(states)) if len(states) == 1 else "mixed",
        "states": states,
        "runs": [{"seed": r.seed, "state": r.state, "reason": r.reason, "folder": r.path} for r in variant.rows],
    }


def shown_state(rows: Sequence[RunRow]) -> str:
    """Return `ok`, with slow machines named, or the number of runs in each state with the reasons."""
    states = Counter(row.state for row in rows)
    if set(states) == {OK}:
        slow = [f"seed {row.seed} on a slow machine (×{row.slowdown:.2f})" for row in rows if row.slowdown]
        return ", ".join([OK, *slow])
    if len(rows) == 1:
        return f"{rows[0].state}: {rows[0].reason}" if rows[0].reason else rows[0].state
    counts = ", ".join(f"{count} {state}" for state, count in states.items())
    reasons = {f"seed {row.seed}: {row.reason}" for row in rows if row.state != OK and row.reason}
    return f"{counts} ({'; '.join(sorted(reasons))})" if reasons else counts


def shown_p(p: float) -> str:
    """Return p with four decimals."""
    return f"<{SMALLEST_P:.4f}" if p < SMALLEST_P else f"{p:.4f}"


def _mean(variant: Variant, attribute: str) -> float | None:
    # A variant without a run that counts still shows how far its runs came.
    figures = [value for row in variant.counted or variant.rows if (value := getattr(row, attribute))]
    return float(np.mean(figures)) if figures else None
