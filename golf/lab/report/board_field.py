"""The public field for the board: published records and imported submissions on the text of a study."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from golf.lab.report.findings import Findings
from golf.lab.report.imported_rows import find_imported, imported_folder, imported_variants
from golf.lab.report.public_records import public_records
from golf.lab.report.rows import IMPORTED, is_score
from golf.lab.report.texts import FINEWEB, OLDER_SCORES, shown_text

# Where a score is from: a public record, a pull request after them (docs/records.md), logs that were read
IN_TABLE, FRONTIER, FROM_LOGS = "published", "frontier", "imported"


def public_field(findings: Findings, root: Path) -> dict[str, Any]:
    """Return the public records, best first, that are scored on the text of all variants, else why there are none.

    An imported submission under `root` stands for the published record of its name.
    """
    texts = {text for v in findings.variants if v.counted for text in v.texts}
    if texts != {FINEWEB}:
        scored = " and ".join(sorted(map(shown_text, texts))) or "no text yet"
        return {"records": [], "about": f"Public records are scored on {FINEWEB}; these runs on {scored}."}
    judged = {v.label for v in findings.variants if any(row.source == IMPORTED for row in v.rows)}
    others = {name: score for name, score in (_published() | _imported(root)).items() if name not in judged}
    records = [{"name": name, "bpb": bpb, "source": source} for name, (bpb, source) in others.items()]
    about = "Records are scored in the way that each chose, such as a sliding window or test-time training."
    return {"records": sorted(records, key=lambda record: record["bpb"]), "about": about}


def _published() -> dict[str, tuple[float, str]]:
    """Return score in bits per byte on today's text and its source by record; empty if docs/ is not installed."""
    rows = public_records()
    scores = {row["folder"]: float(row["published_bpb"]) for row in rows}
    sources = {row["folder"]: FRONTIER if row["status"] == FRONTIER else IN_TABLE for row in rows}
    return {name: (OLDER_SCORES.get(bpb, bpb), sources[name]) for name, bpb in scores.items()}


def _imported(root: Path) -> dict[str, tuple[float, str]]:
    folders = [path.parent for path in sorted(imported_folder(root).glob("*/import.json"))]
    scores_by_name = {}
    for folder in folders:
        for variant in imported_variants(find_imported(str(folder), root)):
            scores = [row.val_bpb for row in variant.counted if row.data == FINEWEB and is_score(row.val_bpb)]
            if scores:
                scores_by_name[variant.label] = statistics.fmean(score for score in scores if score), FROM_LOGS
    return scores_by_name
