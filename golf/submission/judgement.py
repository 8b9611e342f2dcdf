"""What the runs of a submission show against a reference, under a rule."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from golf.config import RulesConfig
from golf.errors import GolfError
from golf.report.results import shown_p
from golf.report.rows import row_of
from golf.report.store import run_folders
from golf.report.variants import Variant
from golf.report.verdicts import Verdict, judge
from golf.submission.runs import SubmittedRun


def reference_of(text: str) -> Variant | float:
    """A published score in bits per byte, or the runs in a folder."""
    try:
        return float(text)
    except ValueError:
        pass
    path = Path(text)
    if not path.exists():
        raise GolfError(f"--reference {text} is neither a number of bits per byte nor a folder of runs.")
    rows = tuple(row_of(folder) for folder in run_folders(path))
    if len(variants := {row.variant for row in rows}) > 1:
        raise GolfError(f"--reference {text} holds {len(variants)} variants: name the folder of one.")
    return Variant(rows[0].variant, rows[0].name, rows)


def verdict_on(runs: Sequence[SubmittedRun], reference: Variant | float, rules: RulesConfig) -> Verdict:
    """`runs` against the reference."""
    rows = tuple(row_of(run.folder.path) for run in runs)
    mine = Variant("submission", rows[0].name, rows)
    return judge([mine], reference, rules)[mine.id]


def sentence(verdict: Verdict, reference: Variant | float, rules: RulesConfig) -> str:
    """The verdict for people, with what it rests on."""
    against = (
        f"{reference:g} bpb" if isinstance(reference, float) else f"{reference.label} ({len(reference.counted)} seeds)"
    )
    margin = f"by more than {rules.margin_nats:g} nats per token " if rules.margin_nats else ""
    rule = f"rules `{rules.name}`: better {margin}at p < {rules.alpha:g}"
    parts = [
        f"**{verdict.kind}** than {against}"
        if verdict.kind in ("better", "worse")
        else f"**{verdict.kind}** ({against})"
    ]
    if verdict.difference_bpb is not None:
        parts.append(f"difference {verdict.difference_bpb:+.5f} bpb")
    if verdict.difference_nats is not None:
        parts.append(f"{verdict.difference_nats:+.5f} nats per token")
    if verdict.comparison is not None:
        parts.append(verdict.comparison.test)
    if verdict.p is not None:
        parts.append(f"p {shown_p(verdict.p)}")
    return ", ".join([*parts, *([verdict.reason] if verdict.reason else [])]) + f" ({rule})"
