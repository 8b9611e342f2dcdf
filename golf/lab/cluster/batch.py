"""Runs that were sent to a rented machine at one time, and what was last heard of them, as files of their sweep.

`<sweep's folder>/ssh/<id>.batch.json` is written once, before the runs start. `<id>.heard.json` is the follower's.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from golf.errors import GolfError
from golf.files import read_json, read_object, write_json
from golf.lab.cluster.line import Line
from golf.lab.cluster.state import PENDING, UNREACHABLE, JobState
from golf.lab.sweep.jobs import Key
from golf.run.folder import runs_root
from golf.run.locks import Lock, is_locked, try_lock
from golf.run.sweeps import sweep_folder
from golf.words import duration

PATIENCE_SECONDS = 3600.0  # time that a round waits for that of another process
FOLLOWER = "here/follower"  # in place of the id of the job that sends a sweep's next round
LOST, ENDED = "LOST", "ENDED"  # states of the jobs of a machine that is gone, and of a process that is gone


@dataclass(frozen=True)
class Batch:
    """Runs on their way to a machine, or there."""

    id: str
    sweep: str
    sent_at: float  # seconds since 1970
    host: str
    ssh: str
    code: str  # name of the snapshot
    script: str  # shell lines that lead to the code there and to its Python
    keys: list[Key]
    done: str  # command that runs here once all is home
    lost_minutes: float

    @property
    def line(self) -> Line:
        """The line to the machine."""
        return Line(self.host, self.ssh)

    def jobs(self) -> list[str]:
        """Return the ids of the jobs, one a run."""
        return [f"{self.host}/{self.id}_{index}" for index in range(len(self.keys))]

    def write(self) -> None:
        """Write the batch down, before it starts."""
        write_json(_folder(self.sweep) / f"{self.id}.batch.json", dataclasses.asdict(self))


@dataclass
class Heard:
    """Last answer of a batch's machine. Times are in seconds since 1970."""

    heard_at: float = 0.0  # of the last answer; 0 before the first
    failing_since: float = 0.0  # of the first try without an answer since then; 0 if the last one had one
    tried_at: float = 0.0
    lost_minutes: float = 0.0
    said: str = ""  # why the last try had no answer
    jobs: dict[str, list[str]] = dataclasses.field(default_factory=dict)  # index → state and reason
    is_home: bool = False  # whether nothing more will come

    @property
    def is_lost(self) -> bool:
        """Tell whether the tries without an answer took too long."""
        return bool(self.failing_since) and self.tried_at - self.failing_since >= self.lost_minutes * 60


def is_rented(job: str) -> bool:
    """Tell whether a job's id is of a rented machine. Those of Slurm are numbers."""
    return "/" in job


def read_batches(sweep: str = "*") -> list[Batch]:
    """Return the batches of a sweep, or of all, the oldest first."""
    values = [read_json(path) for path in runs_root().glob(f"sweeps/{sweep}/ssh/*.batch.json")]
    batches = [Batch(**{**v, "keys": [(variant, seed) for variant, seed in v["keys"]]}) for v in values]
    return sorted(batches, key=lambda batch: batch.sent_at)


def read_heard(batch: Batch) -> Heard:
    """Return what was heard of a batch; before the first answer nothing."""
    return Heard(**read_object(_folder(batch.sweep) / f"{batch.id}.heard.json"))


def write_heard(batch: Batch, heard: Heard) -> None:
    """Write down what was heard."""
    write_json(_folder(batch.sweep) / f"{batch.id}.heard.json", vars(heard))


def rented_states(ids: Iterable[str]) -> dict[str, JobState]:
    """Return the states of jobs on rented machines by their ids, as the follower heard of them last."""
    wanted = set(ids)
    return {
        job: state for batch in (read_batches() if wanted else ()) for job, state in _states(batch) if job in wanted
    }


def _states(batch: Batch) -> list[tuple[str, JobState]]:
    heard = read_heard(batch)
    quiet = duration(heard.tried_at - heard.failing_since)
    states = []
    for index, job in enumerate(batch.jobs()):
        name, reason = heard.jobs.get(str(index), [ENDED if heard.heard_at else PENDING, ""])
        state = JobState(name, reason=reason)
        if heard.failing_since and (state.is_open or not heard.heard_at):
            state = JobState(LOST if heard.is_lost else UNREACHABLE, reason=f"no answer for {quiet}: {heard.said}")
        states.append((job, state))
    return states


def owners() -> dict[Key, Batch]:
    """Return the latest batch of each run: its files alone come home, so that two machines never mix a run's files."""
    return {key: batch for batch in read_batches() for key in batch.keys}


def waves_file(sweep: str) -> Path:
    """Return the list of the rounds that were sent of a sweep in rounds; other sweeps have none."""
    return sweep_folder(sweep) / "waves.jsonl"


def follower_lock(sweep: str) -> str:
    """Return the name of the lock that a sweep's follower holds while it lives."""
    return f"follower-{sweep}"


def bring_lock(name: str) -> Lock:
    """Return the lock without which no file of sweep `name` comes home, once it is free."""
    return _waited(f"bring-{name}", f"brings files of {name} home")


def done_lock() -> Lock:
    """Return the lock without which no `cluster.done` is run, once it is free."""
    return _waited("cluster-done", "runs a cluster.done")


def _waited(name: str, what: str) -> Lock:
    until = time.monotonic() + PATIENCE_SECONDS
    while (lock := try_lock(name)) is None:
        if time.monotonic() > until:
            raise GolfError(f"Another process {what} and does not end: end it and try again.")
        time.sleep(0.1)
    return lock


def about_follower(sweep: str) -> str:
    """Return what to do if runs of a sweep are on rented machines and nobody brings them home; else nothing."""
    heards = [read_heard(batch) for batch in read_batches(sweep)]
    left = [heard for heard in heards if not (heard.is_home or heard.is_lost)]
    if not left or is_locked(follower_lock(sweep)):
        return ""
    last = max(heard.heard_at for heard in left)
    ago = f"heard {duration(time.time() - last)} ago" if last else "never heard"
    return f"nobody brings its runs home ({ago}): golf follow {sweep} does"


def _folder(sweep: str) -> Path:
    return sweep_folder(sweep) / "ssh"
