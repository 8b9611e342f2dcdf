"""Plain values for the board's verdicts on one study, with a column for each swept setting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from golf.lab.report.board_field import public_field
from golf.lab.report.findings import Findings, mean_interval, score_title, swept_numbers, variant_name
from golf.lab.report.results import results_table
from golf.lab.report.rows import IMPORTED, RunRow
from golf.lab.report.store import run_id
from golf.lab.report.table import Column
from golf.lab.report.variants import SCORES, Variant

REFERENCE, UNTESTED = "reference", "no verdict"
MOST_LEADING = 3  # swept settings that stand before the verdict; where there are more, a name does


def sweep_values(findings: Findings, root: Path) -> dict[str, Any]:
    """Return table, notes and variants of `findings`, and the public field; scores are in bits per byte."""
    table = results_table(findings)
    columns, leading = _columns(findings, table.filled)
    rows = [{**row, **variant.values} for row, variant in zip(table.rows, findings.variants, strict=True)]
    numbers = swept_numbers(findings, [v for v in findings.variants if v.scores(findings.score)])
    caps = {row.cap_bytes for v in findings.variants for row in v.rows if row.cap_bytes}
    reference = findings.reference
    return {
        "title": table.title,
        "command": findings.study.command,
        "swept": list(findings.study.swept),
        "score": score_title(findings),
        "score_field": SCORES[findings.score],
        "confidence": findings.rules.confidence,
        "looks": findings.looks,
        "reference": findings.reference_name if reference is not None else None,
        "reference_id": reference.id if isinstance(reference, Variant) else "",
        "columns": [{"key": column.key, "title": column.title, "is_text": column.is_text} for column in columns],
        "leading": leading,
        "rows": [[column.cell(row) for column in columns] for row in rows],
        "notes": list(table.notes),
        "variants": [_variant(findings, v, numbers.get(v.id)) for v in findings.variants],
        "cap_bytes": sorted(caps),
        "field": public_field(findings, root),
    }


def _columns(findings: Findings, filled: list[Column]) -> tuple[list[Column], int]:
    """Return the columns with the verdict early, and how many stand before it. A sweep without runs has none."""
    if not filled:
        return [], 0
    name, *others = filled
    verdict = [column for column in others if column.key == "verdict"]
    rest = others[len(verdict) :]
    keys = findings.study.swept
    # Variants from elsewhere, or refused ones, are known by their labels alone.
    has_all = all(key in variant.values for variant in findings.variants for key in keys)
    swept = [Column(key, key, is_text=True) for key in keys] if keys and has_all else []
    lead = swept if 0 < len(swept) <= MOST_LEADING else [name]
    return [*lead, *verdict, *(swept if lead != swept else []), *rest], len(lead)


def _variant(findings: Findings, variant: Variant, number: float | None) -> dict[str, Any]:
    verdict, scored = findings.verdicts.get(variant.id), variant.scores(findings.score)
    comparison = verdict.comparison if verdict else None
    is_reference = variant is findings.reference
    return {
        "id": variant.id,
        "name": variant_name(findings, variant),
        "values": dict(variant.values),
        "kind": REFERENCE if is_reference else verdict.kind if verdict else UNTESTED,
        "number": number,
        "mean": variant.mean(findings.score),
        "interval": mean_interval(findings, variant) if scored else None,
        "difference": verdict.difference_bpb if verdict else None,
        "difference_interval": comparison.interval(findings.rules.confidence) if comparison else None,
        "seeds": [_seed(row, SCORES[findings.score]) for row in variant.scored(findings.score)],
        "runs": [id for row in variant.rows if (id := page_of(row))],
        "waiting": sum(row.path is None and row.is_open for row in variant.rows),
    }


def _seed(row: RunRow, field: str) -> dict[str, Any]:
    return {"run": page_of(row), "seed": row.seed, "score": getattr(row, field), "bytes": row.total_bytes}


def page_of(row: RunRow) -> str:
    """Return the name of a run on the board; empty for a row without a run folder, such as an imported one."""
    return run_id(row.path) if row.path and row.source != IMPORTED else ""
