"""The jobs of a sweep. Two jobs are the same run if variant id and seed are equal, however their overrides read."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from golf.files import DAMAGED, parsed, read_plain
from golf.run.attempts import at_work
from golf.run.code import about_change, code_of_run, own_code
from golf.run.folder import RunFolder, find_run, finished_run, runs_root, state_of
from golf.run.identity import variant_id
from golf.run.locks import is_locked, run_lock_name
from golf.run.result import STOPPED
from golf.settings.config import Config
from golf.words import counted

Key = tuple[str, int]  # variant id and seed
AS_IT_IS = "the command as it is"  # label of a variant beside bundles on top of it
MISSING, RUNNING, KILLED, FINISHED = "missing", "running", "killed", "finished"
TAIL_BYTES = 4096  # longest end of metrics.jsonl that is read for its last line


@dataclass(frozen=True)
class Job:
    """One run of a sweep."""

    overrides: tuple[str, ...]  # the command line that would run this job alone
    cfg: Config
    key: Key
    remarks: tuple[str, ...] = ()  # sentences about settings chosen automatically and about doubtful ones

    @staticmethod
    def of(overrides: Iterable[str], cfg: Config, remarks: Iterable[str] = ()) -> Job:
        """Return the job of `cfg`, with its key."""
        return Job(tuple(overrides), cfg, (variant_id(cfg), cfg.seed), tuple(remarks))


@dataclass(frozen=True)
class Refused:
    """Overrides that do not make a valid run, and the sentence that says what to change."""

    overrides: tuple[str, ...]
    sentence: str


def distinct(jobs: Sequence[Job]) -> list[Job]:
    """Return `jobs` without those that are the same run as an earlier one."""
    first: dict[Key, Job] = {}
    for job in jobs:
        first.setdefault(job.key, job)
    return list(first.values())


def dealt(jobs: Sequence[Job], seeds: Sequence[int]) -> list[Job]:
    """Return `jobs` in an order that takes every variant from machine to machine as the list is dealt out in turn.

    `seeds` are all seeds of the sweep in order. In the order of a grid, as many variants as machines, or a multiple,
    would put all seeds of a variant on one machine, whose speed would then pass for the variant's.
    """
    rounds: dict[int, list[Job]] = {seed: [] for seed in seeds}
    for job in jobs:
        rounds.setdefault(job.key[1], []).append(job)
    order: list[Job] = []
    for number, group in enumerate(rounds.values()):
        first = number % len(group) if group else 0
        order += [*group[first:], *group[:first]]
    return order


def common_overrides(jobs: Sequence[Job | Refused]) -> set[str]:
    """Return the overrides that all jobs share, which labels leave out; empty for a single job."""
    return set.intersection(*(set(job.overrides) for job in jobs)) if len(jobs) > 1 else set()


def label(job: Job | Refused, common: Iterable[str]) -> str:
    """Return the overrides that set a job apart from the others of its sweep; all of them if there are no others."""
    own = " ".join(o for o in job.overrides if o not in common)
    return own or (AS_IT_IS if common else " ".join(job.overrides))


def progress_of(key: Key) -> str:
    """Return how far a run is: missing, running, killed or finished.

    A killed run has an attempt that was cut short, and no process works on it.
    """
    # First, because an attempt that runs beside a finished one, under `launch.fresh`, does not undo it.
    if finished_run(*key):
        return FINISHED
    if is_locked(run_lock_name(*key)) or at_work(*key):
        return RUNNING
    return KILLED if find_run(*key) else MISSING


def made_by_other_code(keys: Iterable[Key]) -> list[str]:
    """Return sentences about the finished runs among `keys` whose code is not the one at hand."""
    found = [run for key in keys if (run := find_run(*key)) and finished_run(*key)]
    codes = Counter(code_of_run(run.path) for run in found)
    changes = [(n, about_change(code, runs_root())) for code, n in codes.items()]
    return [f"{n} finished before, by {change}" for n, change in changes if change]


def about_stopped(keys: Iterable[Key]) -> list[str]:
    """Return a sentence about the runs among `keys` that `golf stop` ended; none without any."""
    stopped = [run for key in keys if (run := find_run(*key)) and state_of(run) == STOPPED]
    if not stopped:
        return []
    folders = " ".join(str(run.path) for run in stopped)
    return [f"{counted(len(stopped), 'run')} stopped by hand, left so; golf stop --undo {folders} lets them go on"]


def is_repeated(key: Key) -> bool:
    """Tell whether the run has finished by the code at hand, so that another attempt is a second draw."""
    return bool(finished_run(*key) and (run := find_run(*key)) and code_of_run(run.path) == own_code())


def last_metric(folder: RunFolder) -> dict[str, Any]:
    """Return the newest complete line of the run's metrics.jsonl; empty before there is one."""
    with contextlib.suppress(*DAMAGED):
        # The run may be in the middle of writing its last line.
        complete_lines = read_plain(folder.metrics, TAIL_BYTES).rpartition(b"\n")[0]
        return dict(parsed(complete_lines.rpartition(b"\n")[2]))
    return {}
