"""Ask Slurm for the states of jobs, and cancel jobs. Without Slurm no job has a state."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable

from golf.errors import GolfError
from golf.lab.cluster.batch import is_rented, rented_states
from golf.lab.cluster.state import PENDING as PENDING
from golf.lab.cluster.state import JobState as JobState

IDS_AT_ONCE = 500  # job ids on one command line


def job_states(ids: Iterable[str]) -> dict[str, JobState]:
    """Return the state of each job by its id, such as `123_4`. Jobs that Slurm has forgotten are left out.

    Those of rented machines are as the follower heard of them last; the others are Slurm's.
    The queue is asked first. Ended jobs are looked up in the accounting where the site has it, then in the controller,
    which remembers a job for MinJobAge seconds.
    """
    asked = set(ids)
    states = rented_states(job for job in asked if is_rented(job))
    wanted = {job for job in asked if not is_rented(job)}
    if not wanted or not shutil.which("squeue"):
        return states
    # Without --array squeue prints the waiting jobs of an array as one line.
    lines = _ask("squeue", "--noheader", "--array", "--me", "--format=%i %T %r").splitlines()
    queue = (line.split(maxsplit=2) for line in lines)
    states |= {job: JobState(state, reason=" ".join(reason)) for job, state, *reason in queue if job in wanted}
    if gone := sorted(wanted - states.keys()):
        states |= _ended(gone)
    return states


def jobs_named(name: str) -> list[str]:
    """Return the ids of this user's jobs with this name that wait or run. Without Slurm there are none."""
    if not shutil.which("squeue"):
        return []
    return _ask("squeue", "--noheader", "--array", "--me", f"--name={name}", "--format=%i").split()


def cancel(ids: Iterable[str]) -> None:
    """Take jobs out of the queue, or stop them. Slurm ignores those that have ended."""
    listed = sorted(ids)
    for start in range(0, len(listed), IDS_AT_ONCE):
        _ask("scancel", *listed[start : start + IDS_AT_ONCE])


def end_gently(job: str) -> None:
    """Send the signal that asks for an end to the processes of a job. Its run then writes what it has."""
    _ask("scancel", "--signal=TERM", job)


def _ended(ids: list[str]) -> dict[str, JobState]:
    """Return the states of jobs that are no longer in the queue, as far as Slurm knows them."""
    states: dict[str, JobState] = {}
    for start in range(0, len(ids), IDS_AT_ONCE):
        states |= _accounted(ids[start : start + IDS_AT_ONCE])
    for array in sorted({job.partition("_")[0] for job in ids if job not in states}):
        states |= {job: state for job, state in _remembered(array) if job in ids and job not in states}
    return states


def _accounted(ids: list[str]) -> dict[str, JobState]:
    """Return the states of jobs by the accounting; empty on a site without it."""
    try:
        lines = _ask("sacct", "-nPX", "-o", "JobID,State,ExitCode", "-j", ",".join(ids)).splitlines()
    except GolfError:
        return {}
    # A state can have further words, such as `CANCELLED by 1000`. With -X sacct leaves out the job's steps.
    rows = [line.split("|") for line in lines]
    return {job: JobState(state.split()[0], code) for job, state, code in rows if state}


def _remembered(array: str) -> list[tuple[str, JobState]]:
    """Return id and state of the jobs of an array that the controller still remembers."""
    try:
        text = _ask("scontrol", "--oneliner", "show", "job", array)
    except GolfError:
        return []
    states = []
    for line in text.splitlines():
        values = dict(re.findall(r"(?<!\w)(\w+)=(\S+)", line))
        if "JobState" in values:
            # A sweep of one run is a job without an array.
            in_array = "ArrayTaskId" in values
            name = f"{values['ArrayJobId']}_{values['ArrayTaskId']}" if in_array else values["JobId"]
            states.append((name, JobState(values["JobState"], values.get("ExitCode", ""))))
    return states


def _ask(*command: str) -> str:
    """Return what a command of Slurm prints. Raises `GolfError` if it is missing, fails or does not answer."""
    try:
        return subprocess.run(command, capture_output=True, encoding="utf-8", check=True, timeout=60).stdout
    except FileNotFoundError as error:
        raise GolfError(f"{command[0]} is not in the PATH: run this where Slurm's commands are.") from error
    except subprocess.CalledProcessError as error:
        sentence = " ".join(error.stderr.split()) or f"status {error.returncode}"
        raise GolfError(f"{command[0]} refused: {sentence}") from error
    except subprocess.TimeoutExpired as error:
        raise GolfError(f"{command[0]} did not answer within {error.timeout:.0f} s: try again later.") from error
