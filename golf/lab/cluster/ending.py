"""Why a job of Slurm ended without a result: its exit status, the last line of its log, and what to do about it."""

from __future__ import annotations

from pathlib import Path

from golf.lab.cluster.batch import is_rented
from golf.lab.cluster.state import JobState

FAILED, LOST = "failed", "lost"
# States after which the same job may well succeed: the machine or a person ended it.
BY_CHANCE = ("NODE_FAIL", "BOOT_FAIL", "PREEMPTED", "CANCELLED", "REVOKED", "LAUNCH_FAILED")
REMEDIES = {
    "OUT_OF_MEMORY": "ask for more memory with +cluster.sbatch.mem=…",
    "TIMEOUT": "raise cluster.minutes",
    "DEADLINE": "raise cluster.minutes",
}
CHATTER = ("srun:", "slurmstepd:")  # lines that Slurm adds below a program's own last words
TAIL_BYTES = 8192


def ending(job: str, slurm: JobState | None, logs: Path) -> tuple[str, str]:
    """Return the state `failed` or `lost` and a sentence about a job that has ended without a result.

    `slurm` is what Slurm says, None if it does not know the job or does not answer; `logs` is the sweep's folder of
    logs. Only a job that was ended from outside is worth submitting again as it is.
    """
    if is_rented(job):
        return _on_a_rented_machine(job, slurm)
    said = last_words(job, logs)
    if slurm is None:
        if said:
            return FAILED, f"ended without a result: {said}"
        return LOST, "Slurm knows it no more, and it has no log: it never started, submit again"
    # Slurm ends a name that it has cut with a plus sign, such as CANCELLED+.
    if (name := slurm.name.removesuffix("+")) in BY_CHANCE:
        return LOST, f"Slurm says {name}, and it left no result: submit again"
    parts = [f"Slurm says {name}{_status(slurm.exit_code)}"]
    parts += [said] if said else ["no log"]
    parts.append(REMEDIES.get(name, "mend that before you submit again"))
    return FAILED, "; ".join(parts)


def _on_a_rented_machine(job: str, state: JobState | None) -> tuple[str, str]:
    """Return the same for a job of a machine that ssh reaches."""
    if state and state.name == LOST.upper():
        return LOST, f"{state.reason}; the same command with another cluster.host goes on from what is here"
    if state and state.name == FAILED:
        return FAILED, state.reason
    last = f" (last line there: {state.reason})" if state and state.reason else ""
    return LOST, f"it ended without a result{last}: submit again"


def _status(exit_code: str) -> str:
    """Return `, exit code 3` or `, signal 9` for Slurm's `3:0` and `0:9`; empty for neither."""
    status, _, signal = exit_code.partition(":")
    if signal.isdigit() and int(signal):
        return f", signal {signal}"
    return f", exit code {status}" if status.isdigit() and int(status) else ""


def last_words(job: str, logs: Path) -> str:
    """Return the last line of the job's log with the log's path; empty without a log, as of a job that never ran."""
    # submitit's names: <job>_<task>_log.err and .out. An error is more telling than ordinary output.
    paths = [path for end in ("err", "out") for path in sorted(logs.glob(f"{job}_*_log.{end}"))]
    for path in paths:
        if line := last_line(path):
            return f"“{line}” ({path})"
    return f"an empty log ({paths[0]})" if paths else ""


def last_line(path: Path) -> str:
    """Return the last line of a log that says something; empty if there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL_BYTES))
            lines = [line.strip() for line in file.read().decode(errors="replace").splitlines()]
    except OSError:
        return ""
    lines = [line for line in lines if line]
    return ([line for line in lines if not line.startswith(CHATTER)] or lines or [""])[-1]
