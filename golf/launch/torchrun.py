"""Several ranks on this machine: torchrun as a child process, its signals, its log files, its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from types import FrameType

from golf.config import Config
from golf.hardware import cpu_cores
from golf.launch.process import STOP_SIGNALS, Interrupted
from golf.launch.rank import failed
from golf.paths import ROOT
from golf.run.folder import RunFolder
from golf.run.result import INTERRUPTED, Result, read_result


def run_under_torchrun(cfg: Config, folder: RunFolder) -> Result:
    """Run all ranks of `folder` and return the result that the first one wrote, or what their end means."""
    folder.rank_logs.mkdir()
    with (folder.rank_logs / "torchrun.log").open("wb") as log:
        agent = subprocess.Popen(_command(cfg, folder), env=_environment(cfg), stderr=log, start_new_session=True)
    received: list[int] = []

    def forward(number: int, _: FrameType | None) -> None:
        received.append(number)
        agent.send_signal(signal.SIGTERM if len(received) == 1 else signal.SIGKILL)

    before = {number: signal.signal(number, forward) for number in STOP_SIGNALS}
    try:
        status = agent.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return _outcome(cfg, folder, status, received)


def _outcome(cfg: Config, folder: RunFolder, status: int, received: list[int]) -> Result:
    result = read_result(folder.result) if folder.result.exists() else None
    if received and (result is None or result.state == INTERRUPTED):
        result = failed(cfg, folder, Interrupted(received[0]))
    elif result is None or result.state == INTERRUPTED:  # nobody asked: a rank died without a word
        result = failed(
            cfg,
            folder,
            RuntimeError(f"a rank ended unexpectedly (torchrun: {status}); see {folder.rank_logs}"),
        )
    else:
        return result
    folder.write_result(result)
    return result


def _command(cfg: Config, folder: RunFolder) -> list[str]:
    """The first rank keeps the terminal for its progress; errors and the other ranks go to files."""
    to_files = ",".join(["0:2", *(f"{rank}:3" for rank in range(1, cfg.launch.nproc))])
    return [
        *(sys.executable, "-m", "golf.launch.agent", "--standalone"),
        *("--nproc-per-node", str(cfg.launch.nproc)),
        *("--signals-to-handle", "SIGTERM,SIGINT,SIGUSR2"),
        *("--log-dir", str(folder.rank_logs), "--redirects", to_files),
        *("-m", "golf.worker", str(folder.path)),
    ]


def _environment(cfg: Config) -> dict[str, str]:
    threads = cfg.launch.threads or max(1, cpu_cores() // cfg.launch.nproc)
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": str(threads)}
