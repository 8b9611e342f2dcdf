"""Facts about the machine on Linux and, with the platform patched, on a Mac; and settings that name Apple's GPU."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from bench.fake_cuda import build_guard
from golf import system
from golf.commands import doctor_gpus, doctor_storage
from golf.commands.diagnosis import NOTE, OK
from golf.errors import GolfError
from golf.lab.track.companion import descendants
from golf.launch.preflight import check_inputs
from golf.launch.shares import shares
from golf.settings import hardware
from golf.settings.composition import compose
from golf.settings.hardware import Hardware
from tests.support import ROOT

MAC = Hardware(gpus=0, gpu_name="", hopper=False, cpu_cores=8, cpu_bf16=False, cpu_compiler=True, mps=True)


@pytest.fixture
def mac(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this machine answer as macOS does: no /proc, no affinity, sysctl, ps, and a peak in bytes."""
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    linux_paths = system.Path
    monkeypatch.setattr(system, "Path", lambda path: linux_paths(str(path).replace("/proc", str(tmp_path))))
    (tmp_path / "sysctl").write_text('#!/bin/sh\n[ "$*" = "-n machdep.cpu.brand_string" ] && echo "Apple M3 Max"\n')
    (tmp_path / "sysctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


def test_a_mac_tells_its_cores_its_name_and_its_memory(mac: None, monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    assert (system.cpu_cores(), system.cpu_name(), system.cpu_flags()) == (8, "Apple M3 Max", set())
    monkeypatch.setattr(resource, "getrusage", lambda who: SimpleNamespace(ru_maxrss=3 << 30))
    assert system.peak_memory_bytes() == 3 << 30, "macOS counts bytes"
    monkeypatch.setattr(sys, "platform", "linux")
    assert system.peak_memory_bytes() == 3 << 40, "Linux counts kibibytes"
    monkeypatch.setattr(sys, "platform", "darwin")
    found = doctor_storage.memory()
    assert system.free_memory_bytes() is None and found.state == OK and "GiB" in found.finding


def test_processes_are_found_without_proc(mac: None, monkeypatch: pytest.MonkeyPatch) -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        assert system.parents()[child.pid] == os.getpid()
        assert child.pid in descendants(os.getpid())
        monkeypatch.setattr(sys, "platform", "linux")
        assert system.parents()[child.pid] == os.getpid()
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_a_process_ends_with_its_parent(platform: str, tmp_path: Path) -> None:
    grandchild = (
        f"import sys, time; sys.platform = {platform!r}; from golf import system; system.PARENT_POLL_SECONDS = 0.05; "
        "system.die_with_parent(); print('ready', flush=True); time.sleep(60)"
    )
    parent = (
        "import subprocess, sys; "
        f"p = subprocess.Popen([sys.executable, '-c', {grandchild!r}], stdout=-1, start_new_session=True); "
        "p.stdout.readline(); print(p.pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        pid = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
    until = time.monotonic() + 600
    while Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]:
        assert time.monotonic() < until, "the orphan lives on"
        time.sleep(0.05)


def test_what_only_linux_has_is_left_alone_elsewhere(mac: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(name: object) -> None:
        raise AssertionError("there is no prctl and no mallopt")

    monkeypatch.setattr(system.ctypes, "CDLL", refused)
    system.adopt_orphans()
    system.tune_allocator()


def test_apples_gpu_is_taken_by_those_who_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with hardware.assumed(MAC):
        assert compose(["scale=laptop"]).launch.device == "cpu", "nobody has proven it"
        cfg = compose(["scale=laptop", "launch.device=mps"])
        settled = (cfg.model.compute_dtype, cfg.optim.muon_dtype, cfg.eval.dtype, cfg.model.attention)
        assert settled == ("fp32", "fp32", "fp32", "sdpa") and cfg.launch.compile == "off"
        assert [share.parts for share in shares(cfg)] == [("mps",)]
        for wrong in ("launch.nproc=2", "launch.compile=full"):
            with pytest.raises(GolfError, match="runs one rank without compiling"):
                compose(["scale=laptop", "data.micro_batches=2", "launch.device=mps", wrong])
    with hardware.assumed(replace(MAC, mps=False)), pytest.raises(GolfError, match="torch finds no Apple GPU here"):
        check_inputs(cfg)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="the fake device is compiled by g++")
def test_steps_on_a_fake_apple_gpu_make_no_float64(tmp_path: Path) -> None:
    guard = build_guard(tmp_path, Path(torch.__file__).parent, ROOT / "tests/fake_cuda/mps_guard.cpp")
    command = [sys.executable, "-W", "ignore", str(ROOT / "tests/fake_cuda/mps_run.py"), str(guard)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900)
    assert done.returncode == 0, done.stderr
    assert "torch.float32" in done.stdout


def test_the_doctor_says_that_apples_gpu_is_unproven(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_gpus, "driver_view", lambda: None)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    found = doctor_gpus.gpus()
    assert found.state == NOTE and "nobody has proven" in found.finding


def test_sums_need_no_float64_of_apples_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    from golf.training.optim.clipping import squared_norm
    from golf.training.ranks import Ranks
    from golf.training.scoring.tally import Tally

    mps = SimpleNamespace(type="mps")
    gradients = [torch.full((3,), 2.0), torch.ones(4)]
    norm = squared_norm(gradients, mps)  # type: ignore[arg-type]
    assert norm.dtype == torch.float32 and norm.item() == pytest.approx(16.0)
    monkeypatch.setattr(Ranks, "send", lambda self, array: torch.from_numpy(array))
    tally = Tally(np.arange(5), np.full(4, 2), Ranks(device=mps))  # type: ignore[arg-type]
    scored = np.array([True, False, True, True])
    tally.add(np.arange(4), scored, torch.tensor([0.5, 9.0, 0.25, 0.25]))
    assert tally.nats.device.type == "cpu" and tally.nats.dtype == torch.float64 and tally.nats.item() == 1.0
    assert tally.own_bpb() == pytest.approx(1.0 / np.log(2) / 6)
