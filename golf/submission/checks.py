"""What has to hold before a folder is a submission, as far as the runs' own records tell."""

from __future__ import annotations

from collections.abc import Sequence

from golf.run.result import OK
from golf.settings.config import Config
from golf.submission.runs import SubmittedRun


def problems(runs: Sequence[SubmittedRun], script_bytes: int, seeds_wanted: int) -> list[str]:
    """A sentence for everything that speaks against submitting `runs` with a script of `script_bytes`."""
    found = [f"seed {run.result.seed}: {problem}" for run in runs for problem in _of_run(run, script_bytes)]
    if len(runs) < seeds_wanted:
        found.append(f"{len(runs)} of the {seeds_wanted} seeds that the rules want: run more, or say --seeds")
    if len(prints := {run.result.data_fingerprint for run in runs}) > 1:
        found.append(f"the seeds were run on {len(prints)} different data sets")
    return found


def _of_run(run: SubmittedRun, script_bytes: int) -> list[str]:
    result, budget, found = run.result, run.cfg.budget, []
    if result.state != OK:  # over a budget, or a guard: something inert, a score that breaks a rule
        found.append(f"{result.state}: {result.reason}")
    if not run.folder.artifact.is_file():
        return [*found, "its artifact is not there any more"]
    if run.artifact_bytes != result.artifact_bytes:
        found.append(
            f"its artifact has {run.artifact_bytes:,} bytes, not the {result.artifact_bytes or 0:,} of the run"
        )
    total = run.artifact_bytes + script_bytes
    if total > budget.artifact_bytes:
        over = total - budget.artifact_bytes
        found.append(f"{total:,} bytes with the script are {over:,} over the cap; --wrap makes the script smaller")
    if budget.train_seconds and result.train_seconds > budget.train_seconds + budget.grace_seconds:
        found.append(f"trained {result.train_seconds:.1f} of {budget.train_seconds:g} s")
    if budget.eval_seconds and (result.eval_seconds or 0.0) > budget.eval_seconds:
        found.append(f"scored for {result.eval_seconds:.1f} of {budget.eval_seconds:g} s")
    return found + _unproven(run.cfg)


def _unproven(cfg: Config) -> list[str]:
    """Guards that such a run did not have."""
    found = []
    if cfg.schedule.warmup_steps == 0:
        found.append("schedule.warmup_steps=0 leaves unproven that every parameter moves and every switch works")
    if cfg.eval.tail != "exact":
        found.append("eval.tail=upstream counts the last tokens more than once")
    return found
