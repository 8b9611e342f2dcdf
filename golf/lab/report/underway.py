"""Say of a variant that is still running how it stands beside its reference, at equal share of the budget.

Only validations tell, and only from 45 to 70 % with the same schedule: training losses between variants do not, and at
equal step a slower variant looks better than it is. The counts are of public runs of ten minutes on 8×H100.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from golf.errors import GolfError
from golf.lab.report.board_curves import VALIDATION, MetricsTail
from golf.lab.report.findings import Findings, variant_name
from golf.lab.report.rows import RunRow
from golf.lab.report.variants import Variant
from golf.run.folder import RunFolder
from golf.run.progress import how_far
from golf.settings.config import Config
from golf.words import signed

WINDOW = (0.45, 0.70)  # shares of the budget
FAR_BEHIND = 0.004  # bits per byte
OF_PUBLIC = "of the better variants in 178 public pairs 2 % (0 to 5) were more than 0.004 behind at 50 %"
Curve = tuple[list[float], list[float]]  # shares of the budget, and bits per byte there


def about_underway(findings: Findings) -> Iterator[str]:
    """Yield a sentence for each running seed whose reference has finished with the same schedule at record scale."""
    reference = findings.reference
    if not isinstance(reference, Variant):
        return
    for variant in findings.variants:
        for row in variant.rows:
            if variant is not reference and row.is_open and row.path:
                with contextlib.suppress(GolfError):
                    yield from _told(variant_name(findings, variant), row, row.path, reference)


def _told(name: str, row: RunRow, folder: Path, reference: Variant) -> Iterator[str]:
    finished = [(r, r.path) for r in reference.counted if r.path]
    # The same seed begins with the same weights; without it all seeds stand for the reference.
    others = [path for r, path in finished if r.seed == row.seed] or [path for _, path in finished]
    cfg = RunFolder(folder).read_config()
    if not others or cfg.scale.step_ratio != 1 or _course(cfg) != _course(RunFolder(others[0]).read_config()):
        return
    shares, scores = _validations(folder)
    within = [at for at, share in enumerate(shares) if WINDOW[0] <= share <= WINDOW[1]]
    theirs = [curve for curve in map(_validations, others) if curve[0]]
    if not within or not theirs:
        return
    share, score = shares[within[-1]], scores[within[-1]]
    if any(not curve[0][0] <= share <= curve[0][-1] for curve in theirs):
        return
    difference = score - float(np.mean([np.interp(share, *curve) for curve in theirs]))
    ends = f"; {OF_PUBLIC}" if difference > FAR_BEHIND else ""
    at = f"at {share:.0%} of the budget its validation is {signed(difference)} bpb from the reference's"
    yield f"{name}, seed {row.seed}, goes on: {at}{ends}."


def _course(cfg: Config) -> tuple[object, ...]:
    """Return what decides how a run goes on from here: schedule, budget, and techniques that switch on late."""
    switches = {name: technique for name, technique in cfg.tech.items() if technique.is_switch}
    return cfg.schedule, cfg.budget.train_seconds, switches


def _validations(folder: Path) -> Curve:
    """Return the validations of a run by share of its budget."""
    cfg, tail = RunFolder(folder).read_config(), MetricsTail(folder)
    tail.refresh()
    points = [(how_far(cfg, p[0], p[2] or 0.0)[0], p[4]) for p in tail.points[VALIDATION] if p[4] is not None]
    return [share for share, _ in points], [score for _, score in points]
