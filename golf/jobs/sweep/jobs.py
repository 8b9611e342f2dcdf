"""What a sweep asks for: jobs, which are told apart by variant and seed, never by how they were written down."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from golf.run.folder import find_run, finished_run
from golf.run.identity import variant_id
from golf.run.locks import is_locked, run_lock_name
from golf.settings.config import Config

Key = tuple[str, int]  # variant id and seed
MISSING, RUNNING, STOPPED, FINISHED = "missing", "running", "stopped", "finished"


@dataclass(frozen=True)
class Job:
    """One run that a sweep wants."""

    overrides: tuple[str, ...]  # as they would be written to run it alone
    cfg: Config
    key: Key
    remarks: tuple[str, ...] = ()  # what was chosen because nothing was said, and what may not be meant

    @staticmethod
    def of(overrides: Iterable[str], cfg: Config, remarks: Iterable[str] = ()) -> Job:
        return Job(tuple(overrides), cfg, (variant_id(cfg), cfg.seed), tuple(remarks))


@dataclass(frozen=True)
class Refused:
    """Overrides that make no run, with the sentence that says what to change."""

    overrides: tuple[str, ...]
    sentence: str


def distinct(jobs: Sequence[Job]) -> list[Job]:
    """`jobs` without those that are the same run as an earlier one."""
    first: dict[Key, Job] = {}
    for job in jobs:
        first.setdefault(job.key, job)
    return list(first.values())


def common_overrides(jobs: Sequence[Job | Refused]) -> set[str]:
    """What all of them have, which is not worth repeating."""
    return set.intersection(*(set(job.overrides) for job in jobs)) if len(jobs) > 1 else set()


def label(job: Job | Refused, common: Iterable[str]) -> str:
    """What sets a job apart from the others of its sweep."""
    return " ".join(o for o in job.overrides if o not in common) or " ".join(job.overrides)


def progress_of(key: Key) -> str:
    """missing, running, stopped (an attempt was cut short and nobody is at work on it) or finished."""
    if finished_run(*key):
        return FINISHED
    if is_locked(run_lock_name(*key)):
        return RUNNING
    return STOPPED if find_run(*key) else MISSING
