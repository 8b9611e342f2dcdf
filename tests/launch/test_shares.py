"""How a sweep divides a machine, tested on machines that are not this one."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import pytest

from golf.errors import GolfError
from golf.launch import shares as module
from golf.launch.launcher import _within
from golf.launch.shares import WAITING, lock_share, own_share, shares
from golf.settings import hardware
from golf.settings.config import Config
from golf.settings.hardware import Hardware
from golf.settings.jobs_config import LaunchConfig


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace this machine by one of 16 cores and 8 GPUs."""
    found = Hardware(gpus=8, gpu_name="H100", hopper=True, cpu_cores=16, cpu_bf16=True, cpu_compiler=True)
    monkeypatch.setattr(module, "detect", lambda: found)
    monkeypatch.setattr(module, "cpu_cores", lambda: 16)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert hardware.detect is not module.detect


def on(device: str, **launch: int) -> Config:
    return Config(launch=LaunchConfig(device=device, **launch))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("launch", "count", "threads"),
    [
        ({}, 1, 16),
        ({"threads": 1}, 16, 1),
        ({"threads": 3}, 5, 3),
        ({"threads": 32}, 1, 32),
        ({"nproc": 2}, 1, 8),
        ({"nproc": 2, "threads": 2}, 4, 2),
        ({"jobs": 4}, 4, 4),
        ({"jobs": 3}, 3, 5),
        ({"jobs": 2, "nproc": 2}, 2, 4),
        ({"jobs": 40}, 40, 1),
        ({"jobs": 2, "threads": 16}, 2, 16),
    ],
)
def test_cpu_cores_are_divided(launch: dict[str, int], count: int, threads: int, machine: None) -> None:
    found = shares(on("cpu", **launch))
    assert len(found) == count and {share.threads for share in found} == {threads}
    parts = [part for share in found for part in share.parts]
    assert len(parts) == len(set(parts))
    assert found[0].environment() == {"OMP_NUM_THREADS": str(threads)}


@pytest.mark.parametrize(
    ("nproc", "jobs", "visible", "groups"),
    [
        (1, None, None, ["0", "1", "2", "3", "4", "5", "6", "7"]),
        (1, 2, None, ["0", "1"]),
        (4, None, None, ["0,1,2,3", "4,5,6,7"]),
        (3, None, None, ["0,1,2", "3,4,5"]),
        (2, None, "7,5,GPU-ab", ["7,5"]),
    ],
)
def test_gpus_are_exclusive(
    nproc: int, jobs: int | None, visible: str | None, groups: list[str], machine: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    cfg = Config(launch=LaunchConfig(device="cuda", nproc=nproc, jobs=jobs))
    assert [share.environment()["CUDA_VISIBLE_DEVICES"] for share in shares(cfg)] == groups


def test_a_job_that_no_machine_of_this_kind_can_run_is_refused(machine: None) -> None:
    with pytest.raises(GolfError, match=r"launch\.nproc=9 needs 9 GPUs, but here are 8"):
        shares(on("cuda", nproc=9))


def test_shares_are_given_out_once_until_they_come_back(machine: None, runs: Path) -> None:
    cfg = on("cpu", threads=4)
    taken = [lock_share(cfg) for _ in range(5)]
    assert taken[4] is None and len({part for t in taken[:4] if t for part in t[0].parts}) == 16
    assert lock_share(on("cpu", threads=1)) is None  # the cores are gone, whatever the size asked for
    assert taken[1]
    for lock in taken[1][1]:
        lock.release()
    again = lock_share(cfg)
    assert again and again[0] == taken[1][0]
    for _, locks in filter(None, (taken[0], taken[2], taken[3], again)):
        for lock in locks:
            lock.release()
    assert list((runs / "locks").iterdir()) == []


def test_a_single_run_waits_for_its_share_and_gives_it_back(
    machine: None, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    locked = lock_share(on("cpu"))
    assert locked
    # The other run ends while this one waits.
    held = contextlib.ExitStack()
    for lock in locked[1]:
        held.enter_context(lock)
    threading.Timer(0.5, held.close).start()
    with own_share(on("cpu", jobs=4)) as share:
        assert share.threads == 4 and capsys.readouterr().err == f"{WAITING}\n"
        assert _within(on("cpu", jobs=4), share).launch.threads == 4
        # Three more parts are free, and nothing is said of them.
        with own_share(on("cpu", jobs=4)):
            assert lock_share(on("cpu")) is None
    assert capsys.readouterr().err == "" and lock_share(on("cpu"))


def test_a_single_run_on_gpus_takes_the_first_ones(machine: None, runs: Path) -> None:
    with own_share(on("cuda", nproc=2)) as share:
        assert share.gpus == ("0", "1") and lock_share(on("cuda", nproc=8)) is None


@pytest.mark.parametrize("nproc", [1, 2, 4])
def test_a_single_run_waits_for_the_first_gpus_while_others_are_free(
    nproc: int, machine: None, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its processes use the first GPUs, whatever it has locked."""
    first = contextlib.ExitStack()
    first.enter_context(own_share(on("cuda", nproc=nproc)))
    threading.Timer(0.5, first.close).start()
    with own_share(on("cuda", nproc=nproc)) as share:
        assert share.gpus == tuple(str(i) for i in range(nproc)) and capsys.readouterr().err == f"{WAITING}\n"


def test_the_whole_machine_leaves_the_threads_open(machine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("golf.launch.launcher.cpu_cores", lambda: 16)
    assert _within(on("cpu"), shares(on("cpu"))[0]) == on("cpu")
