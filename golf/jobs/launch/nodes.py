"""The machines that a run's ranks are spread over, as Slurm gives them."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass

from golf.errors import GolfError

FIRST_PORT, PORTS = 20_000, 10_000  # below Linux's ephemeral ports


@dataclass(frozen=True)
class Nodes:
    """This machine among `count`; the ranks of all of them meet at `address`:`port`, which is the first one's."""

    rank: int = 0
    count: int = 1
    address: str = "127.0.0.1"
    port: int = 0

    @property
    def is_first(self) -> bool:
        return self.rank == 0


def nodes_of_job(wanted: int) -> Nodes:
    """The `wanted` nodes of the Slurm job step that this process is a task of; one node needs no Slurm."""
    if wanted == 1:
        return Nodes()
    count = int(os.environ.get("SLURM_STEP_NUM_NODES", os.environ.get("SLURM_JOB_NUM_NODES", 1)))
    if count != wanted:
        raise GolfError(
            f"launch.nodes={wanted}, but this is a Slurm job of {count} nodes or none: submit it with "
            "scripts/submit.py cluster=slurm_2node, which asks for as many as the run has."
        )
    first = _ask("hostnames", os.environ["SLURM_JOB_NODELIST"]).split()[0]
    port = FIRST_PORT + int(os.environ["SLURM_JOB_ID"]) % PORTS  # two jobs on one machine do not meet
    return Nodes(int(os.environ["SLURM_NODEID"]), count, _address_of(first), port)


def _address_of(node: str) -> str:
    """Where Slurm itself reaches the node: its name need not be one that resolves."""
    match = re.search(r"NodeAddr=(\S+)", _ask("node", node))
    return match[1] if match else node


def _ask(*what: str) -> str:
    try:
        command = ["scontrol", "show", *what]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise GolfError(f"scontrol does not say where this job's nodes are ({error}): is Slurm in the PATH?") from error
