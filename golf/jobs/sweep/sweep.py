"""One batch of jobs from the wish to the results: told apart, checked, written down, run here."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple

from golf.errors import GolfError
from golf.jobs.launch.preflight import check_inputs
from golf.jobs.sweep.display import SweepDisplay
from golf.jobs.sweep.jobs import Job, Refused, common_overrides, distinct, label
from golf.jobs.sweep.record import extended, make_record, read_record, write_record
from golf.jobs.sweep.scheduler import LocalSweep
from golf.jobs.sweep.shares import shares
from golf.run.folder import finished_run
from golf.run.result import Result
from golf.settings.config import Config, TrackConfig


class Row(NamedTuple):
    """How one job ended."""

    overrides: Sequence[str]
    result: Result | None
    error: str = ""
    track: TrackConfig | None = None  # where the run was mirrored


rows: list[Row] = []  # of everything this process has run or tried to run, for its table and its exit status


def run_sweep(asked: Sequence[Job | Refused], *, name: str, first_batch: bool = True) -> list[Result | None]:
    """Run what `asked` needs on this machine; results in its order, None for what could not be run.

    Everything that can be found wrong is reported before anything runs. `Interrupted` comes through.
    """
    jobs, common = [job for job in asked if isinstance(job, Job)], common_overrides(asked)
    unique = distinct(jobs)
    checked = _checked(unique)
    wanted = [job for job in checked if isinstance(job, Job)]
    refused = [job for job in (*asked, *checked) if isinstance(job, Refused)]
    for job in refused:
        print(f"error: {label(job, common)}: {job.sentence}", file=sys.stderr, flush=True)
    _announce(len(asked), wanted, len(jobs) - len(unique), len(refused))
    if wanted:
        before = read_record(name)
        record = make_record(name, sys.argv, wanted, refused, before)
        write_record(record if first_batch or before is None else extended(before, record))
    sweep = LocalSweep(list(wanted), SweepDisplay(len(wanted), common))
    try:
        sweep.run()
    finally:
        rows.extend(Row(job.overrides, None, job.sentence) for job in refused)
        rows.extend(Row(job.overrides, *_outcome(sweep, job), job.cfg.track) for job in wanted)
    return [sweep.results.get(job.key) if isinstance(job, Job) else None for job in asked]


def _outcome(sweep: LocalSweep, job: Job) -> tuple[Result | None, str]:
    """What is known of `job` when the sweep is left, be it by an interrupt."""
    result = sweep.results.get(job.key)
    return result, "" if result else sweep.errors.get(job.key, "not run")


def _checked(jobs: Sequence[Job]) -> list[Job | Refused]:
    """`jobs`, or why they cannot run. The same inputs are opened once, for what has to run."""
    sentences: dict[str, str] = {}
    checked: list[Job | Refused] = []
    for job in jobs:
        if _has_finished(job):
            checked.append(job)
            continue
        inputs = repr((job.cfg.data, job.cfg.eval.seq_len, job.cfg.model, job.cfg.launch.nproc))
        if inputs not in sentences:
            sentences[inputs] = _wrong(job.cfg)
        checked.append(Refused(job.overrides, sentences[inputs]) if sentences[inputs] else job)
    return checked


def _wrong(cfg: Config) -> str:
    try:
        shares(cfg)
        check_inputs(cfg)
    except GolfError as error:
        return str(error)
    return ""


def _has_finished(job: Job) -> bool:
    return not job.cfg.launch.fresh and finished_run(*job.key) is not None


def _announce(asked: int, wanted: Sequence[Job], duplicates: int, refused: int) -> None:
    to_run = [job for job in wanted if not _has_finished(job)]
    counts = {
        "to run": len(to_run),
        "finished before": len(wanted) - len(to_run),
        "the same run as another": duplicates,
        "refused": refused,
    }
    print(f"{asked} jobs: {', '.join(f'{n} {what}' for what, n in counts.items() if n)}", flush=True)
    if to_run:
        fitting = shares(to_run[0].cfg)
        print(f"  {len(fitting)} at once, each with {fitting[0]}; launch.jobs=… changes that", flush=True)
    for remark in dict.fromkeys(remark for job in wanted for remark in job.remarks):
        print(f"  {remark}", flush=True)
