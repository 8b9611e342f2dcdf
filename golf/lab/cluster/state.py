"""The state of a job, as Slurm or the follower of a rented machine says."""

from __future__ import annotations

from typing import NamedTuple

PENDING, RUNNING = "PENDING", "RUNNING"
UNREACHABLE = "UNREACHABLE"  # the machine of the job does not answer, and may be at work on it
OF_SLURM = ("CONFIGURING", "COMPLETING", "REQUEUED", "RESIZING", "SUSPENDED", "REQUEUE_HOLD", "SIGNALING")
OPEN = (PENDING, RUNNING, UNREACHABLE, *OF_SLURM)


class JobState(NamedTuple):
    """State and exit code of a job."""

    name: str  # such as PENDING or FAILED
    exit_code: str = ""  # exit status and signal of an ended job of Slurm, such as 3:0
    reason: str = ""  # why a job waits, such as Resources

    @property
    def is_open(self) -> bool:
        """Tell whether the job waits or runs."""
        return self.name in OPEN
