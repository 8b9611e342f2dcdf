"""Start several ranks with torchrun, on this machine or on each of several: its command, signals, logs and end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

from golf.errors import GolfError
from golf.launch.nodes import Nodes
from golf.launch.process import Interrupted, handled
from golf.launch.worker import failed
from golf.paths import import_variables
from golf.run.folder import RunFolder
from golf.run.result import CRASHED, INTERRUPTED, Result, read_result
from golf.settings.config import Config
from golf.settings.hardware import cpu_cores

LOOPBACK = "127.0.0.1"
_KILLED = re.compile(r"rank +: (\d+) .*\n +exitcode +: -\d+ .*\((SIG\w+)\)")  # in torchrun's report of the ranks


def run_under_torchrun(cfg: Config, folder: RunFolder, nodes: Nodes, code_bytes: int | None) -> Result:
    """Run this machine's ranks of `folder`. Return the result that rank 0 wrote, or a failure if it wrote none.

    Every node calls this with the same folder on a shared file system. Only the first node writes a failure there, and
    only its ranks have to know the bytes of code.
    """
    logs = folder.rank_logs if nodes.count == 1 else folder.rank_logs / f"node{nodes.rank}"
    logs.mkdir(parents=True, exist_ok=True)
    with (logs / "torchrun.log").open("ab") as log:
        before = log.tell()
        command = _command(cfg, folder, nodes, logs) + ([] if code_bytes is None else [str(code_bytes)])
        # Ctrl-C reaches every process of the terminal's group. In a session of its own torchrun gets the signal once,
        # from `forward`.
        threads = cfg.launch.threads or max(1, cpu_cores() // cfg.launch.nproc)
        variables = {**os.environ, **import_variables(), "OMP_NUM_THREADS": str(threads)}
        agent = subprocess.Popen(command, env=variables, stderr=log, start_new_session=True)
    received: list[int] = []

    # The first signal lets the ranks write an `interrupted` result. A second one means that the user does not wait.
    def forward(number: int, _: FrameType | None) -> None:
        # The terminal of a user who has stopped the run may end before the ranks do.
        if received and number == signal.SIGHUP:
            return
        received.append(number)
        agent.send_signal(signal.SIGTERM if len(received) == 1 else signal.SIGKILL)

    with handled(forward):
        status = agent.wait()
    # What stands before this start is of earlier ones. Torchrun stops the other ranks by SIGTERM.
    told = (logs / "torchrun.log").read_bytes()[before:].decode(errors="replace")
    killed = [f"rank {rank} was killed by {name}" for rank, name in _KILLED.findall(told) if name != "SIGTERM"]
    why = f"{killed[0] if killed else 'a rank ended unexpectedly'} (torchrun: {status}); see {folder.rank_logs}"
    return _outcome(cfg, folder, nodes, GolfError(why) if killed else RuntimeError(why), received)


def _outcome(cfg: Config, folder: RunFolder, nodes: Nodes, error: Exception, received: list[int]) -> Result:
    """Return the result of the run, given the `error` that ended torchrun and the signals that came to this process."""
    result = read_result(folder.result) if folder.result.exists() else None
    if received and (result is None or result.state == INTERRUPTED):
        result = failed(cfg, folder, Interrupted(received[0]))
    # Ranks that say `interrupted` without a signal to this process were stopped by torchrun, because another rank died.
    elif result is None or result.state in (INTERRUPTED, CRASHED):
        result = result if result and result.state == CRASHED else failed(cfg, folder, error)
        # What the other ranks say of a rank that was killed is that they lost the connection.
        result.reason = str(error) if isinstance(error, GolfError) else result.reason
        # Only its own node knows the signal.
        if nodes.count > 1 and re.search("(closed|reset) by peer|Broken pipe|remote process", result.reason):
            result.reason = f"a rank of another node ended; see {folder.rank_logs}"
    else:
        return result
    if nodes.is_first:
        folder.write_failure(result)
    return result


def _command(cfg: Config, folder: RunFolder, nodes: Nodes, logs: Path) -> list[str]:
    """Return torchrun's command line. Rank 0 keeps the terminal for its progress; all other output goes to `logs`."""
    # torchrun's codes: 2 sends standard error to a file, 3 sends both outputs.
    to_files = ",".join(["0:2", *(f"{rank}:3" for rank in range(1, cfg.launch.nproc))])
    # USR2 is Slurm's notice before a time limit, which torchrun does not pass on unless it is named.
    return [
        *(sys.executable, "-m", "golf.launch.agent"),
        *_rendezvous(nodes),
        *("--nproc-per-node", str(cfg.launch.nproc)),
        *("--signals-to-handle", "SIGTERM,SIGINT,SIGUSR2"),
        *("--log-dir", str(logs), "--redirects", to_files),
        *("-m", "golf.launch.worker", str(folder.path)),
    ]


def _rendezvous(nodes: Nodes) -> list[str]:
    """Return torchrun's arguments that say how the nodes find each other."""
    if nodes.count == 1:
        # By the number, because a machine's own name may not resolve, and torchrun would wait for minutes.
        return ["--standalone", "--local-addr", LOOPBACK]
    # Static, because torchrun's elastic rendezvous numbers the nodes in the order of their arrival. Rank 0, which
    # writes the run folder, has to be on the first node, which checks the result there.
    here = ("--nnodes", str(nodes.count), "--node-rank", str(nodes.rank))
    return [*here, "--master-addr", nodes.address, "--master-port", str(nodes.port)]
