"""What Slurm knows about jobs: one question for all of them, and nothing at all where there is no Slurm."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable

from golf.errors import GolfError

PENDING, RUNNING = "PENDING", "RUNNING"
OPEN = (PENDING, RUNNING, "CONFIGURING", "COMPLETING", "REQUEUED", "RESIZING", "SUSPENDED", "REQUEUE_HOLD", "SIGNALING")
IDS_AT_ONCE = 500  # on a command line


def job_states(ids: Iterable[str]) -> dict[str, str]:
    """Slurm's word for each job such as `123_4`, without those it has forgotten.

    The queue is asked first, then the accounting where the site keeps one, then the controller's short memory.
    """
    wanted = set(ids)
    if not wanted or not shutil.which("squeue"):
        return {}
    found = {job: state for job, state in _queue() if job in wanted}
    if gone := sorted(wanted - found.keys()):
        found |= _ended(gone)
    return found


def cancel(ids: Iterable[str]) -> None:
    """Take jobs out of the queue, or stop them. Ended ones are passed over by Slurm."""
    listed = sorted(ids)
    for start in range(0, len(listed), IDS_AT_ONCE):
        _ask("scancel", *listed[start : start + IDS_AT_ONCE])


def _queue() -> list[tuple[str, str]]:
    lines = _ask("squeue", "--noheader", "--array", "--me", "--format=%i %T").splitlines()
    return [(job, state) for job, _, state in (line.strip().partition(" ") for line in lines)]


def _ended(ids: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for start in range(0, len(ids), IDS_AT_ONCE):
        found |= _accounted(ids[start : start + IDS_AT_ONCE])
    arrays = {job.partition("_")[0] for job in ids if job not in found}
    for array in sorted(arrays):
        found |= {job: state for job, state in _remembered(array) if job in ids and job not in found}
    return found


def _accounted(ids: list[str]) -> dict[str, str]:
    try:
        lines = _ask("sacct", "-nPX", "-o", "JobID,State", "-j", ",".join(ids)).splitlines()
    except GolfError:  # no accounting here
        return {}
    return {job: state.split()[0] for job, _, state in (line.partition("|") for line in lines) if state}


def _remembered(array: str) -> list[tuple[str, str]]:
    try:
        text = _ask("scontrol", "--oneliner", "show", "job", array)
    except GolfError:  # forgotten, MinJobAge seconds after its end
        return []
    states = []
    for line in text.splitlines():
        values = dict(re.findall(r"(\w+)=(\S+)", line))
        if "ArrayTaskId" in values:
            states.append((f"{values['ArrayJobId']}_{values['ArrayTaskId']}", values["JobState"]))
    return states


def _ask(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    except FileNotFoundError as error:
        raise GolfError(f"{command[0]} is not in the PATH: run this where Slurm's commands are.") from error
    except subprocess.CalledProcessError as error:
        sentence = " ".join(error.stderr.split()) or f"status {error.returncode}"
        raise GolfError(f"{command[0]} refused: {sentence}") from error
    except subprocess.TimeoutExpired as error:
        raise GolfError(f"{command[0]} did not answer within {error.timeout:.0f} s: try again later.") from error
