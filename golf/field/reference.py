"""The reference that a submission is compared with, and the verdict on the submission as a sentence."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from golf.errors import GolfError
from golf.field.audit import Audit
from golf.field.foreign_run import ForeignRuns
from golf.field.submission_json import read_claims
from golf.field.submitted_runs import read_logs, submitted
from golf.lab.report.results import shown_p
from golf.lab.report.rows import RunRow, bytes_per_token, row_of
from golf.lab.report.store import run_folders
from golf.lab.report.texts import UNKNOWN_TEXT, imported_text
from golf.lab.report.variants import Variant
from golf.lab.report.verdicts import BETTER, NO_DIFFERENCE, WORSE, Verdict
from golf.settings.config import RulesConfig

LINKS = {BETTER: "than", WORSE: "than", NO_DIFFERENCE: "from"}  # word after a verdict; "against" after the others


def reference_of(text: str) -> Variant | float:
    """Return a published score in bits per byte, own runs in a folder, or the runs of a submission's logs.

    Raises `GolfError` for a number that cannot be a score and a folder without runs or with several variants.
    """
    try:
        value = float(text)
    except ValueError:
        pass
    else:
        if math.isfinite(value) and value > 0:
            return value
        raise GolfError(f"--reference {text} cannot be a score: give bits per byte, such as 1.2244.")
    if not (path := Path(text)).is_dir():
        raise GolfError(f"--reference {text} is neither a number of bits per byte nor a folder of runs or logs.")
    try:
        rows = tuple(row_of(folder) for folder in run_folders(path))
    except GolfError:
        # A folder without Golf's runs may be somebody's submission.
        return _variant_of_logs(path)
    if len(variants := {row.variant for row in rows}) > 1:
        raise GolfError(f"--reference {text} holds {len(variants)} variants: name the folder of one.")
    return Variant(rows[0].variant, rows[0].name, rows)


def _variant_of_logs(folder: Path) -> Variant:
    claims = read_claims(folder, Audit())
    if not (runs := submitted(read_logs(folder, claims, Audit()), claims).runs):
        raise GolfError(f"--reference {folder} holds neither runs nor logs with a score.")
    return Variant("reference", folder.absolute().name, rows_of_logs(runs))


def rows_of_logs(runs: ForeignRuns) -> tuple[RunRow, ...]:
    """Return a row for each run, with the fields that a verdict needs."""
    rows = []
    for run in runs:
        loss, bpb = run.value("val_loss"), run.value("val_bpb")
        per_token = bytes_per_token(loss, bpb)
        text = imported_text(run.texts.get("scored_text", UNKNOWN_TEXT), run.value("val_tokens"), run.folder)
        known: Any = {"val_bpb": bpb, "val_loss": loss, "bytes_per_token": per_token, "data": text}
        rows.append(RunRow("logs", run.name, run.seed, **known))
    return tuple(rows)


def sentence(verdict: Verdict, reference: Variant | float, rules: RulesConfig) -> str:
    """Return the verdict with its difference, test, p-value and rule; the verdict itself is in bold Markdown."""
    if isinstance(reference, float):
        against = f"{reference:g} bpb"
    else:
        against = f"{reference.label} ({len(reference.counted)} seeds)"
    parts = [f"**{verdict.kind}** {LINKS.get(verdict.kind, 'against')} {against}"]
    differences = (
        ("difference {:+.5f} bpb", verdict.difference_bpb),
        ("{:+.5f} nats per token", verdict.difference_nats),
    )
    parts += [form.format(value) for form, value in differences if value is not None]
    if verdict.comparison is not None:
        parts.append(verdict.comparison.test)
    if verdict.p is not None:
        parts.append(f"p {shown_p(verdict.p)}")
    if verdict.reason:
        parts.append(verdict.reason)
    margin = f"by more than {rules.margin_nats:g} nats per token " if rules.margin_nats else ""
    return ", ".join(parts) + f" (rules `{rules.name}`: better {margin}at p < {rules.alpha:g})"
