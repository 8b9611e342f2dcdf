"""The findings on a sweep as plain values for the board: the table, its sentences, and what the plots show."""

from __future__ import annotations

from typing import Any

from golf.report.board_runs import run_id
from golf.report.findings import Findings, mean_interval, score_title, swept_numbers, variant_name
from golf.report.results import results_table
from golf.report.variants import SCORES, Variant

REFERENCE, UNTESTED = "reference", "no verdict"


def sweep_values(findings: Findings) -> dict[str, Any]:
    """Return table, notes and variants of `findings`; scores are in bits per byte."""
    table = results_table(findings)
    columns = table.filled
    numbers = swept_numbers(findings, [v for v in findings.variants if v.scores(findings.score)])
    caps = {row.cap_bytes for v in findings.variants for row in v.rows if row.cap_bytes}
    return {
        "title": table.title,
        "command": findings.study.command,
        "swept": " ".join(findings.study.swept) or "variant",
        "score": score_title(findings),
        "confidence": findings.rules.confidence,
        "reference": findings.reference_name if findings.reference is not None else None,
        "columns": [{"title": column.title, "is_text": column.is_text} for column in columns],
        "rows": [[column.cell(row) for column in columns] for row in table.rows],
        "notes": list(table.notes),
        "variants": [_variant(findings, v, numbers.get(v.id)) for v in findings.variants],
        "cap_bytes": sorted(caps),
    }


def _variant(findings: Findings, variant: Variant, number: float | None) -> dict[str, Any]:
    verdict, scored = findings.verdicts.get(variant.id), variant.scores(findings.score)
    comparison = verdict.comparison if verdict else None
    is_reference = variant is findings.reference
    return {
        "id": variant.id,
        "name": variant_name(findings, variant),
        "kind": REFERENCE if is_reference else verdict.kind if verdict else UNTESTED,
        "number": number,
        "mean": variant.mean(findings.score),
        "interval": mean_interval(findings, variant) if scored else None,
        "difference": verdict.difference_bpb if verdict else None,
        "difference_interval": comparison.interval(findings.rules.confidence) if comparison else None,
        "seeds": [
            {
                "run": run_id(row.path) if row.path else "",
                "seed": row.seed,
                "score": getattr(row, field),
                "bytes": row.total_bytes,
            }
            for field in (SCORES[findings.score],)
            for row in variant.scored(findings.score)
        ],
    }
