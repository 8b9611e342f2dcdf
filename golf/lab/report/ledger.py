"""The ledger: every finished variant of the run store with its verdict, negative results included."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from golf.errors import GolfError
from golf.lab.report.findings import Findings, judged
from golf.lab.report.results import result_row, shown_p
from golf.lab.report.season import Place, Try, season, try_of
from golf.lab.report.store import index_runs, seed_of, sweep_names
from golf.lab.report.study import read_study
from golf.lab.report.table import Column, Table
from golf.lab.report.variants import Variant
from golf.lab.report.verdicts import Ranking
from golf.run.folder import runs_root
from golf.settings.config import RulesConfig
from golf.words import counted, interval_text, signed

JUDGED = (
    Column("n", "n"),
    Column("mean_bpb", "bpb", "{:.4f}".format),
    Column("reference", "reference", is_text=True, spare=1),
    Column("difference_bpb", "Δ bpb", signed),
    Column("difference_nats_per_token", "Δ nats/token", signed, spare=2),
    Column("interval_bpb", "interval of Δ bpb", interval_text, in_csv=False, spare=3),
    Column("interval_low_bpb", "", in_text=False),
    Column("interval_high_bpb", "", in_text=False),
    Column("p", "p", shown_p),
    Column("verdict", "verdict", is_text=True),
    Column("season", "over the season", is_text=True, spare=4),
    Column("variant_id", "", in_text=False),
    Column("seeds", "", in_text=False),
    Column("state", "", in_text=False),
    Column("cpu_seconds", "", in_text=False),
)


def ledger(rules: RulesConfig, **options: Any) -> Table:
    """Return one row for every variant with a finished run; `options` are those of `judged`.

    Variants outside all sweeps are listed without a verdict, because they have no reference.
    """
    rows: list[dict[str, Any]] = []
    seen: set[tuple[str, int | None]] = set()
    notes = _notes(rules)
    seasons: dict[str, dict[Try, Place]] = {}  # by reference
    for name in sweep_names(runs_root()):
        try:
            findings = judged(read_study([name]), rules, **options)
        except GolfError as error:
            # One damaged record hides no other sweep.
            notes.append(str(error))
            continue
        # A variant may be in several sweeps, with another reference in each; seeds in none are listed by themselves.
        seen |= {(v.id, row.seed) for v in findings.study.variants for row in v.rows}
        reference = findings.reference
        if isinstance(reference, Variant) and reference.id not in seasons:
            seasons[reference.id] = season(reference.id, runs_root(), rules, **options)
        rows += _rows(findings, seasons[reference.id] if isinstance(reference, Variant) else {})
    if any(len(places) > 1 for places in seasons.values()):
        notes.append(
            "Over the season: all that was compared with one reference, oldest sweep first; of what is called better "
            f"there, no more than {rules.alpha:.0%} are false on average (LORD++)."
        )
    rows += _loose(rules, seen)
    columns = (Column("sweep", "sweep", is_text=True), Column("variant", "variant", is_text=True), *JUDGED)
    return Table(columns, rows, f"{counted(len(rows), 'result')} by rules={rules.name}", notes)


def _rows(findings: Findings, places: Mapping[Try, Place]) -> list[dict[str, Any]]:
    tries = ((variant, try_of(variant, places)) for variant in _finished(findings))
    return [_row(findings, variant, one and places[one]) for variant, one in tries]


def _finished(findings: Findings) -> list[Variant]:
    return [v for v in findings.study.variants if any(not row.is_open for row in v.rows)]


def _row(findings: Findings, variant: Variant, place: Place | None) -> dict[str, Any]:
    row = result_row(findings, variant, place)
    # The state says why there is no verdict.
    if not variant.counted:
        row["verdict"] = row["state"]
    reference = findings.reference_name if findings.reference is not None else None
    names = {"sweep": findings.study.title, "variant": variant.label, "reference": reference}
    return {**row, **names, "season": place and str(place)}


def _loose(rules: RulesConfig, seen: set[tuple[str, int | None]]) -> list[dict[str, Any]]:
    """Return the rows of finished runs that no sweep asked for; `seen` are ids and seeds of all others."""
    # A folder without a result belongs to a run that goes on or was killed; the ledger has finished runs only.
    found = ((id, path) for id, paths in index_runs(runs_root()).items() for path in sorted(paths))
    targets = [str(p) for id, p in found if (id, seed_of(p)) not in seen and (p / "result.json").is_file()]
    if not targets:
        return []
    alone = Findings(read_study(targets), rules, "final", None, {}, Ranking(None, set(), set()), None)
    return [{**row, "sweep": "", "rank": "", "verdict": row["verdict"] or "no reference"} for row in _rows(alone, {})]


def _notes(rules: RulesConfig) -> list[str]:
    margin = f" by more than {rules.margin_nats:g} nats per token" if rules.margin_nats else ""
    test = f"one-sided p < {rules.alpha:g}, corrected within each sweep; {rules.confidence:.0%} intervals."
    return [f"Better{margin} or worse at {test}"]
