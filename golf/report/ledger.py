"""The ledger: every finished variant of the run store with its verdict, negative results included."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from golf.errors import GolfError
from golf.report.findings import Findings, judged
from golf.report.results import interval_text, result_row, shown_p, signed
from golf.report.store import index_runs, sweep_names
from golf.report.study import read_study
from golf.report.table import Column, Table
from golf.report.variants import Variant
from golf.report.verdicts import Ranking
from golf.run.folder import runs_root
from golf.settings.config import RulesConfig
from golf.words import counted

CATALOGUE_FIELDS = ("category", "technique", "base", "delta_bpb", "measured", "evidence", "source")
# Experiment of conf/experiment/negative → first words of its row from PR #670 in the catalogue
PUBLISHED = {
    "batch_1m": "1M-token batch",
    "fused_qkv": "QKV fusion",
    "gated_attention": "Gated attention (dense)",
    "hadamard": "SpinQuant / Hadamard",
    "int5_int8": "int5/int8 mixed",
    "prune_28": "Selective +-1 pruning",
    "prune_37": "Selective +-1 pruning",
    "soft_round": "Soft-round QAT",
    "ttt_sgd": "Score-first SGD TTT",
    "value_residual": "Value residual learning",
    "weight_decay_08": "Weight decay 0.08",
    "wider_int5": "d=576 + int5",
    "xsa_all": "XSA on all 11",
}
PUBLISHED_SOURCE = "PR670"

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
)


def ledger(rules: RulesConfig, **options: Any) -> Table:
    """Return one row for every variant with a finished run; `options` are those of `judged`.

    Variants outside all sweeps are listed without a verdict, because they have no reference.
    """
    rows, seen = [], set()
    for name in sweep_names(runs_root()):
        findings = judged(read_study([name]), rules, **options)
        # A variant may be in several sweeps, with another reference in each; only those in none are listed by
        # themselves.
        seen |= {v.id for v in findings.study.variants}
        rows += _rows(findings)
    rows += _loose(rules, seen)
    columns = (Column("sweep", "sweep", is_text=True), Column("variant", "variant", is_text=True), *JUDGED)
    return Table(columns, rows, f"{counted(len(rows), 'result')} by rules={rules.name}", _notes(rules))


def beside_catalogue(path: Path, own: Table) -> Table:
    """Return the published negative results of a CSV file, beside the verdicts of `own` on the same changes.

    Raises `GolfError` if the file is no catalogue.
    """
    published = read_catalogue(path)
    rows: list[Mapping[str, Any]] = []
    for entry in published:
        found = [row for row in own.rows if _is_same(entry, str(row["name"])) and row["verdict"] != "reference"]
        rows += [{**row, **entry} for row in found] or [entry]
    columns = (
        Column("category", "kind", is_text=True, spare=4),
        Column("technique", "published", is_text=True),
        Column("base", "base", is_text=True, spare=5),
        Column("delta_bpb", "published Δ bpb"),
        Column("measured", "measured", is_text=True),
        Column("evidence", "evidence", is_text=True, spare=6),
        Column("source", "source", is_text=True),
        Column("variant", "own run", is_text=True),
        *(column for column in JUDGED if column.key != "reference"),
    )
    count = len({row["technique"] for row in rows if row.get("verdict")})
    return Table(
        columns, rows, f"{len(published)} published negative results, {count} of them also run here", own.notes
    )


def read_catalogue(path: Path) -> list[dict[str, str]]:
    """Return the rows of the catalogue by column name; raises `GolfError` if the file is none."""
    try:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError) as error:
        raise GolfError(f"{path} cannot be read as a catalogue ({error}).") from error
    if not rows or set(CATALOGUE_FIELDS) - set(rows[0]):
        raise GolfError(f"{path} is no catalogue of results: its first line has to name {', '.join(CATALOGUE_FIELDS)}.")
    return [{field: row[field] or "" for field in CATALOGUE_FIELDS} for row in rows]


def _rows(findings: Findings) -> list[dict[str, Any]]:
    finished = [v for v in findings.study.variants if any(not row.is_open for row in v.rows)]
    name = findings.reference_name if findings.reference is not None else None
    return [_row(findings, variant, name) for variant in finished]


def _row(findings: Findings, variant: Variant, reference: str | None) -> dict[str, Any]:
    row = result_row(findings, variant)
    # The state says why there is no verdict.
    if not variant.counted:
        row["verdict"] = row["state"]
    own = {
        "sweep": findings.study.title,
        "variant": variant.label,
        "name": variant.rows[0].name,
        "reference": reference,
    }
    return {**row, **own}


def _loose(rules: RulesConfig, seen: set[str]) -> list[dict[str, Any]]:
    """Return the rows of finished variants that no sweep asked for; `seen` are the ids of all others."""
    # A folder without a result belongs to a run that goes on or was killed; the ledger has finished runs only.
    folders = [path for id, paths in index_runs(runs_root()).items() if id not in seen for path in sorted(paths)]
    targets = [str(path) for path in folders if (path / "result.json").is_file()]
    if not targets:
        return []
    study = read_study(targets)
    alone = Findings(study, rules, "final", None, {}, Ranking(None, set(), set()), None)
    return [{**row, "sweep": "", "rank": "", "verdict": row["verdict"] or "no reference"} for row in _rows(alone)]


def _is_same(entry: Mapping[str, str], name: str) -> bool:
    begins = PUBLISHED.get(name)
    return begins is not None and entry["source"] == PUBLISHED_SOURCE and entry["technique"].startswith(begins)


def _notes(rules: RulesConfig) -> Sequence[str]:
    margin = f" by more than {rules.margin_nats:g} nats per token" if rules.margin_nats else ""
    return [
        f"Better{margin} or worse at one-sided p < {rules.alpha:g}, corrected within each sweep; "
        f"{rules.confidence:.0%} intervals."
    ]
