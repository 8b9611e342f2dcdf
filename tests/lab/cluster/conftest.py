"""A real Slurm and rented machines for the tests of this folder that are marked so, started and stopped here."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from golf.lab.corpora.own_text import OwnDataset
from tests.lab.cluster.pods import Pod, why_not
from tests.support import ROOT

SCRIPT = str(ROOT / "scripts/dev/slurm.sh")
NEEDED = ("slurmctld", "slurmd", "sbatch", "munged")


def free_ports(count: int) -> int:
    """Return the first of `count` neighbouring ports on which no process listens."""
    for first in range(30_000, 40_000, count):
        with socket.socket() as s:
            if all(s.connect_ex(("127.0.0.1", port)) for port in range(first, first + count)):
                return first
    raise AssertionError("no free ports")


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Yield the environment in which Slurm's commands work."""
    if missing := [name for name in NEEDED if not shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")]:
        pytest.skip(f"needs Debian's slurmctld, slurmd, slurm-client and munge ({', '.join(missing)} missing)")
    if os.geteuid() != 0:
        pytest.skip("starting Slurm's daemons needs root")
    pytest.importorskip("submitit")
    folder = tmp_path_factory.mktemp("slurm")
    environment = {
        **os.environ,
        "PATH": f"{os.environ['PATH']}:/usr/sbin",
        "GOLF_SLURM_DIR": str(folder / "files"),
        "GOLF_SLURM_PORT": str(free_ports(3)),
    }
    subprocess.run([SCRIPT, "up"], env=environment, check=True, stdout=subprocess.DEVNULL, timeout=900)
    environment["SLURM_CONF"] = str(folder / "files" / "slurm.conf")
    yield environment
    subprocess.run([SCRIPT, "down"], env=environment, check=True, timeout=900)


@pytest.fixture
def cluster(slurm: dict[str, str], runs: Path) -> Iterator[dict[str, str]]:
    """Yield the same environment with runs in the test's folder. Empty the queue afterwards."""
    yield {**slurm, "GOLF_RUNS": str(runs), "OMP_NUM_THREADS": "1"}
    subprocess.run(["scancel", "--me"], env=slurm, check=False, timeout=900)


@pytest.fixture
def pods(tmp_path: Path, tiny: OwnDataset, runs: Path) -> Iterator[list[Pod]]:
    """Yield two rented machines that have neither the runs nor the data nor the code of this one."""
    if reason := why_not():
        pytest.skip(reason)
    runs.mkdir()
    (tmp_path / "pods").mkdir()
    hidden = [runs, tiny.folder.parents[1], ROOT / "golf", ROOT / "conf"]
    machines = [Pod(name, tmp_path / "pods" / name, hidden) for name in ("pod-a", "pod-b")]
    for machine in machines:
        machine.up()
    yield machines
    # Followers look for a machine that is gone for minutes.
    for path in runs.glob("locks/follower-*"):
        with contextlib.suppress(OSError, ValueError, LookupError):
            os.kill(int(json.loads(path.read_text())["process"]), signal.SIGKILL)
    for machine in machines:
        machine.down()
