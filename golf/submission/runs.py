"""Runs of a submission: the seeds of one variant, read from their folders."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from golf.bits import Score
from golf.challenge import CAP_BYTES, OTHER_TRACK, RECORD_GPUS, RECORD_TRACK, TRAIN_SECONDS
from golf.errors import GolfError
from golf.files import read_json
from golf.idea_folders import refuse_changed
from golf.lab.report.rows import row_of
from golf.lab.report.store import run_folders
from golf.lab.report.variants import Variant
from golf.run.code import THEN, code_of
from golf.run.environment import kind_of
from golf.run.folder import RunFolder
from golf.run.result import Result, read_result
from golf.settings.config import Config
from golf.words import listed


@dataclass(frozen=True)
class SubmittedRun:
    """One seed of a submission."""

    folder: RunFolder
    cfg: Config
    result: Result
    environment: dict[str, Any]

    @property
    def score(self) -> Score:
        """Return the final score. Raises `GolfError` for a run that did not end well."""
        if (score := self.result.final_score) is None:
            raise GolfError(f"{self.folder.path} has no score of its artifact: submit only runs that ended well.")
        return score

    @property
    def artifact_bytes(self) -> int:
        """Return the bytes of the artifact on disk, which need not be those of the result."""
        return self.folder.artifact.stat().st_size

    @property
    def hardware(self) -> str:
        """Return the machine as submission.json names it."""
        return kind_of(self.environment).replace("×", "x")


def gather(paths: Sequence[Path]) -> list[SubmittedRun]:
    """Return the runs at or below `paths` by seed. Raises `GolfError` unless they are finished seeds of one variant."""
    # One run can be named twice, by different paths.
    folders = list(dict.fromkeys(folder.resolve() for path in paths for folder in run_folders(path)))
    runs = [_read(RunFolder(folder)) for folder in folders]
    if len(variants := {run.result.variant_id for run in runs}) > 1:
        raise GolfError(f"These are runs of {len(variants)} variants: a submission is one variant in several seeds.")
    seeds = [run.result.seed for run in runs]
    if twice := sorted({seed for seed in seeds if seeds.count(seed) > 1}):
        raise GolfError(f"There are two runs of seed {twice[0]}: name the one that you submit.")
    if len(codes := {code_of(run.environment) for run in runs}) > 1 or THEN in "".join(codes):
        raise GolfError(f"The code that ran is {listed(sorted(codes))}: repeat the seeds, so that one code made all.")
    return sorted(runs, key=lambda run: run.result.seed)


def _read(folder: RunFolder) -> SubmittedRun:
    if not folder.result.is_file():
        raise GolfError(f"{folder.path} has no result.json: the run is still going or was killed.")
    environment = read_json(folder.path / "environment.json")
    cfg = folder.read_config()
    refuse_changed(cfg.idea_code)
    return SubmittedRun(folder, cfg, read_result(folder.result), environment)


def mean(runs: Sequence[SubmittedRun], value: Callable[[SubmittedRun], float]) -> float:
    """Return the mean of `value` over the seeds."""
    return statistics.fmean(value(run) for run in runs)


def sample_sd(runs: Sequence[SubmittedRun], value: Callable[[SubmittedRun], float]) -> float | None:
    """Return the sample standard deviation of `value` over the seeds; None for one seed."""
    return statistics.stdev(value(run) for run in runs) if len(runs) > 1 else None


def track_of(runs: Sequence[SubmittedRun]) -> str:
    """Return the challenge's track whose budget and machine the runs meet."""
    budgets = [run.cfg.budget for run in runs]
    # A budget of 0 is unlimited.
    within = all(0 < b.train_seconds <= TRAIN_SECONDS and b.artifact_bytes <= CAP_BYTES for b in budgets)
    h100 = all(run.environment.get("gpus") == RECORD_GPUS and "H100" in run.environment["gpu"] for run in runs)
    return RECORD_TRACK if within and h100 else OTHER_TRACK


def as_variant(runs: Sequence[SubmittedRun]) -> Variant:
    """Return the runs as a variant of the report."""
    rows = tuple(row_of(run.folder.path) for run in runs)
    return Variant("submission", rows[0].name, rows)
