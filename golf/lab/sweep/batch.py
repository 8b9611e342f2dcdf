"""One batch of a sweep's jobs: remove duplicates, check inputs, write the sweep's record, run, and mirror the table.

Most sweeps are one batch. A sweeper that searches asks for several.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from golf.errors import GolfError
from golf.lab.sweep.display import SweepDisplay
from golf.lab.sweep.jobs import (
    Job,
    Refused,
    about_stopped,
    common_overrides,
    distinct,
    is_repeated,
    label,
    made_by_other_code,
)
from golf.lab.sweep.record import extended, make_record, read_record, write_record
from golf.lab.sweep.scheduler import LocalSweep
from golf.launch.shares import shares
from golf.run.folder import finished_run
from golf.run.locks import try_lock
from golf.run.result import INTERRUPTED, Result
from golf.run.sweeps import Row, sweep_folder, sweep_lock_name
from golf.settings.config import RulesConfig
from golf.settings.jobs_config import is_tracked
from golf.words import counted


def run_batch(
    asked: Sequence[Job | Refused],
    *,
    name: str,
    rows: list[Row],
    first_batch: bool = True,
    plan: dict[str, Any] | None = None,
) -> list[Result | None]:
    """Run the jobs of `asked` here, for sweep `name`. Return results in their order, None where a job has none.

    `plan` is what a sweep in rounds has fixed in advance, for its record.

    Everything that can be found wrong is reported before anything runs. `rows` gets a row for each distinct job, also
    when a signal stops the batch and `Interrupted` is raised.
    """
    jobs, common = [job for job in asked if isinstance(job, Job)], common_overrides(asked)
    unique = distinct(jobs)
    checked = _checked(unique)
    wanted = [job for job in checked if isinstance(job, Job)]
    refused = [job for job in (*asked, *checked) if isinstance(job, Refused)]
    for job in refused:
        print(f"error: {label(job, common)}: {job.sentence}", file=sys.stderr, flush=True)
    announce(len(asked), wanted, len(jobs) - len(unique), len(refused))
    if wanted:
        # The record is written before the first run, so that reports and a restart know the sweep even if it is killed.
        before = read_record(name)
        record = replace(make_record(name, sys.argv, wanted, refused, before), sequential=plan)
        record = record if first_batch or before is None else extended(before, record)
        write_record(record)
    sweep = LocalSweep(list(wanted), SweepDisplay(len(wanted), common))
    # The lock tells others that more runs are to come. A second start of the same command has none.
    at_work = try_lock(sweep_lock_name(name)) if wanted else None
    try:
        with at_work or contextlib.nullcontext():
            sweep.run()
    finally:
        rows.extend(Row(job.overrides, None, job.sentence) for job in refused)
        rows.extend(Row(job.overrides, *_outcome(sweep, job, common), job.cfg.track) for job in wanted)
    return [sweep.results.get(job.key) if isinstance(job, Job) else None for job in asked]


def mirror_report(name: str, rows: Iterable[Row], rules: RulesConfig) -> None:
    """Send the table of sweep `name` to the tracker that its runs were mirrored to, if there was one."""
    track = next((row.track for row in rows if row.track and is_tracked(row.track)), None)
    if track is None or read_record(name) is None:
        return
    from golf.lab.track.backfill import back_fill

    if done := back_fill(sweep_folder(name), track, rules):
        print(f"W&B report: {done.url or sweep_folder(name) / done.files}", flush=True)


def _outcome(sweep: LocalSweep, job: Job, common: Collection[str]) -> tuple[Result | None, str]:
    """Return result and error of `job`. After an interrupt it may have no result, or one that says no more."""
    result, name = sweep.results.get(job.key), label(job, common)
    if result:
        return result, f"{name}: {INTERRUPTED}" if result.state == INTERRUPTED else ""
    return None, sweep.errors.get(job.key, f"{name}: not run")


def _checked(jobs: Sequence[Job]) -> list[Job | Refused]:
    """Return `jobs`, with those that cannot run replaced by `Refused`. Finished jobs are not checked."""
    # Only here, because it needs torch, and commands that only read a sweep's rounds start without.
    from golf.launch.preflight import check_inputs

    # Jobs of a sweep mostly share their inputs, so each data set is opened once and not a thousand times. The key has
    # all that the checks read: a preset whose package is missing refuses no other.
    sentences: dict[str, str] = {}
    checked: list[Job | Refused] = []
    for job in jobs:
        if has_finished(job):
            checked.append(job)
            continue
        cfg = job.cfg
        inputs = repr((cfg.data, cfg.eval.seq_len, cfg.model, cfg.tech, cfg.quant.codec, cfg.launch, cfg.track))
        if inputs not in sentences:
            sentences[inputs] = ""
            try:
                check_inputs(cfg)
                shares(cfg)
            except GolfError as error:
                sentences[inputs] = str(error)
        checked.append(Refused(job.overrides, sentences[inputs]) if sentences[inputs] else job)
    return checked


def has_finished(job: Job) -> bool:
    """Tell whether a sweep would take the result of an earlier run of `job`."""
    return not job.cfg.launch.fresh and finished_run(*job.key) is not None


def announce(asked: int, wanted: Sequence[Job], duplicates: int, refused: int) -> None:
    """Print the counts of jobs, how many run at once, and the remarks of their configurations."""
    to_run = [job for job in wanted if not has_finished(job)]
    counts = {
        "to run": len(to_run),
        "finished before": len(wanted) - len(to_run),
        "the same run as another": duplicates,
        "refused": refused,
    }
    print(f"{counted(asked, 'job')}: {', '.join(f'{n} {what}' for what, n in counts.items() if n)}", flush=True)
    finished = [job.key for job in wanted if job not in to_run]
    for sentence in made_by_other_code(finished):
        print(f"  {sentence}; launch.fresh=true runs them again", flush=True)
    for sentence in about_stopped(finished):
        print(f"  {sentence}", flush=True)
    if again := [job for job in to_run if job.cfg.launch.fresh and is_repeated(job.key)]:
        print(f"  {len(again)} repeat finished runs of the same code, whose first results count in tables", flush=True)
    if to_run:
        fitting = shares(to_run[0].cfg)
        print(f"  {len(fitting)} at once, each with {fitting[0]}; launch.jobs=… changes that", flush=True)
    for remark in dict.fromkeys(remark for job in wanted for remark in job.remarks):
        print(f"  {remark}", flush=True)
