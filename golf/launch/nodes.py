"""The machines of a run, as Slurm assigns them."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass

from golf.errors import GolfError

# Linux gives ports from 32,768 on to outgoing connections, so these are below.
FIRST_PORT, PORTS = 20_000, 10_000


@dataclass(frozen=True)
class Nodes:
    """This machine's number among the machines of a run, and the address of the first, where all ranks meet."""

    rank: int = 0
    count: int = 1
    address: str = "127.0.0.1"
    port: int = 0

    @property
    def is_first(self) -> bool:
        return self.rank == 0


def nodes_of_job(wanted: int) -> Nodes:
    """Return the nodes of the Slurm job step that this process is a task of. One node needs no Slurm.

    Raises `GolfError` if the job does not have the `wanted` number of nodes, or if Slurm cannot be asked.
    """
    if wanted == 1:
        return Nodes()
    # A step can have fewer nodes than its job.
    count = int(os.environ.get("SLURM_STEP_NUM_NODES", os.environ.get("SLURM_JOB_NUM_NODES", 1)))
    if count != wanted:
        raise GolfError(
            f"launch.nodes={wanted}, but this is no Slurm job of as many nodes ({count or 'none'}): submit it with "
            "golf submit cluster=slurm_2node, which asks for as many as the run has."
        )
    # Slurm shortens the list of nodes, such as node[1-4]; scontrol writes it out.
    first = _ask("hostnames", os.environ["SLURM_JOB_NODELIST"]).split()[0]
    # The port comes from the job's number, so that two jobs on one machine do not use the same one.
    port = FIRST_PORT + int(os.environ["SLURM_JOB_ID"]) % PORTS
    # The name of a node may not resolve, and Slurm knows the address.
    address = re.search(r"NodeAddr=(\S+)", _ask("node", first))
    return Nodes(int(os.environ["SLURM_NODEID"]), count, address[1] if address else first, port)


def _ask(*what: str) -> str:
    """Return what `scontrol show` prints. Raises `GolfError` if it fails."""
    try:
        command = ["scontrol", "show", *what]
        return subprocess.run(command, capture_output=True, encoding="utf-8", check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise GolfError(f"scontrol does not say where this job's nodes are ({error}): is Slurm in the PATH?") from error
