"""`golf doctor` on this machine and on strange ones: pretended drivers, GPUs, packages and disks."""

from __future__ import annotations

import importlib.metadata
import os
import sys
import warnings
from collections import namedtuple
from pathlib import Path

import pytest
import torch

from golf import system
from golf.commands import cli, doctor_command, doctor_gpus, doctor_software, doctor_storage
from golf.commands.diagnosis import NOTE, OK, PROBLEM, Diagnosis, examine
from golf.settings import hardware

H100 = "550.54.15, NVIDIA H100 80GB HBM3"
Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder of commands that this process finds."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return folder


def command(folder: Path, name: str, output: str, status: int = 0) -> None:
    """A shell script in place of a system's command."""
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{output}'\nexit {status}\n")
    path.chmod(0o755)


def nvidia_smi(folder: Path, listing: str, processes: str = "") -> None:
    """A driver's command that lists GPUs and the processes on them."""
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\ncase \"$1\" in *apps*) printf '{processes}';; *) echo '{listing}';; esac\n")
    path.chmod(0o755)


def pretend_gpus(monkeypatch: pytest.MonkeyPatch, count: int, capability: tuple[int, int], archs: list[str]) -> None:
    """Have torch see GPUs of a capability, with kernels for `archs`."""
    pretended = {
        "is_available": lambda: True,
        "device_count": lambda: count,
        "get_device_name": lambda i: "NVIDIA H100 80GB HBM3",
        "get_device_capability": lambda i: capability,
        "get_arch_list": lambda: archs,
    }
    for name, function in pretended.items():
        monkeypatch.setattr(torch.cuda, name, function)
    monkeypatch.setattr(doctor_gpus, "computing_fails", lambda: "")


def test_it_describes_this_machine(runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    secret = "0123456789" * 4
    monkeypatch.setenv("WANDB_API_KEY", secret)
    monkeypatch.setattr(sys, "argv", ["golf"])
    status = cli.main(["doctor"])
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    assert [line[9:26].strip() for line in lines[:-2]] == list(doctor_command.CHECKS)
    assert {line[:8].strip() for line in lines[:-2]} <= {OK, NOTE, PROBLEM}
    assert status == (1 if any(line.startswith(PROBLEM) for line in lines) else 0)
    assert lines[-1].startswith("next: ") and not runs.exists()
    assert secret not in printed and torch.__version__ in printed


def test_a_check_that_fails_is_a_note() -> None:
    def strange() -> Diagnosis:
        raise OSError("no such thing\nin this kernel")

    found = examine("memory", strange)
    assert found.line == "note     memory           cannot be checked (OSError: no such thing)"


def test_no_gpu_is_in_order(bin_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert doctor_gpus.gpus().state == OK


@pytest.mark.parametrize(
    ("built_for", "driver", "environment", "says", "advises"),
    [
        (None, "550.54.15", {}, "is built without CUDA", "install torch's CUDA build"),
        ("12.8", "470.82.01", {}, "driver 470.82.01 is too old for CUDA 12.8, which needs 525.60.13", "update the dri"),
        ("13.0", "550.54.15", {}, "too old for CUDA 13.0, which needs 580.65.6", "update the driver"),
        ("12.8", "550.54.15", {"CUDA_VISIBLE_DEVICES": "-1"}, "CUDA_VISIBLE_DEVICES=-1 hides it", "unset CUDA_VIS"),
        ("12.8", "550.54.15", {}, "CUDA initialization: unknown error", "ask torch itself"),
    ],
)
def test_a_gpu_that_torch_cannot_use_is_named_with_the_reason(
    built_for: str | None,
    driver: str,
    environment: dict[str, str],
    says: str,
    advises: str,
    bin_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unavailable() -> bool:
        warnings.warn("CUDA initialization: unknown error\nmore", stacklevel=1)
        return False

    command(bin_folder, "nvidia-smi", f"{driver}, NVIDIA L4\n{driver}, NVIDIA L4")
    monkeypatch.setattr(torch.cuda, "is_available", unavailable)
    monkeypatch.setattr(torch.version, "cuda", built_for)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = doctor_gpus.gpus()
    assert found.state == PROBLEM and found.finding.startswith("2× NVIDIA L4 found, but torch cannot use it: ")
    assert says in found.finding and found.advice.startswith(advises)


def test_a_driver_that_does_not_run(bin_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    command(bin_folder, "nvidia-smi", "NVIDIA-SMI has failed because it could not communicate with the driver.", 9)
    found = doctor_gpus.gpus()
    assert found.state == PROBLEM and "could not communicate with the driver" in found.finding
    command(bin_folder, "nvidia-smi", "No devices were found")
    assert "No devices were found" in doctor_gpus.gpus().finding
    (bin_folder / "nvidia-smi").write_text("#!/nowhere\n")
    assert "cannot be started" in doctor_gpus.gpus().finding


def test_a_driver_that_hangs_is_not_waited_for(bin_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("golf.commands.diagnosis.COMMAND_SECONDS", 0.1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    (bin_folder / "nvidia-smi").write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    (bin_folder / "nvidia-smi").chmod(0o755)
    assert "did not answer within 0.1 s" in doctor_gpus.gpus().finding


@pytest.mark.parametrize(
    ("count", "capability", "archs", "state", "says"),
    [
        (2, (9, 0), ["sm_80", "sm_90"], OK, "2× NVIDIA H100 80GB HBM3, driver 550.54.15"),
        (2, (6, 0), ["sm_80", "sm_90"], PROBLEM, "is sm_60, but this torch has kernels for sm_80, sm_90"),
        (1, (9, 0), ["sm_90"], NOTE, "torch sees 1 of 2: CUDA_VISIBLE_DEVICES=0 hides the others"),
        (2, (7, 5), ["sm_75"], NOTE, "no bf16 in hardware: set model.compute_dtype=fp32"),
    ],
)
def test_gpus_that_torch_sees(
    count: int,
    capability: tuple[int, int],
    archs: list[str],
    state: str,
    says: str,
    bin_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nvidia_smi(bin_folder, f"{H100}\n{H100}")
    pretend_gpus(monkeypatch, count, capability, archs)
    if count == 1:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    found = doctor_gpus.gpus()
    assert (found.state, says in found.finding) == (state, True), found


def test_a_gpu_that_does_not_compute_or_is_taken(bin_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_gpus(monkeypatch, 1, (9, 0), ["sm_90"])
    nvidia_smi(bin_folder, H100, "GPU-aa, 123, 70000, python")
    found = doctor_gpus.gpus()
    assert found.state == NOTE and "process 123 (python) holds 70000 MiB" in found.finding
    monkeypatch.setattr(doctor_gpus, "computing_fails", lambda: "CUDA error: out of memory")
    assert "computing fails (CUDA error: out of memory)" in doctor_gpus.gpus().finding


@pytest.mark.parametrize(
    ("archs", "capability", "runs"),
    [
        (["sm_80"], 86, True),
        (["sm_86"], 80, False),
        (["sm_90a"], 90, True),
        (["sm_80", "sm_90"], 120, False),
        (["sm_80", "compute_90"], 120, True),
        (["sm_100", "sm_120"], 120, True),
        (["gfx90a"], 90, True),
    ],
)
def test_kernels_run_on_later_minor_versions(archs: list[str], capability: int, runs: bool) -> None:
    assert doctor_gpus.has_kernels(archs, capability) is runs


def test_flash_attention_is_tried_and_not_only_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("flash_attn", "flash_attn_interface"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "flash_attn.py").write_text("raise ImportError('undefined symbol: _ZN3c10')")
    found = doctor_software.flash_attention()
    assert found.state == PROBLEM and "flash_attn cannot be used (undefined symbol: _ZN3c10)" in found.finding
    (tmp_path / "flash_attn.py").unlink()
    (tmp_path / "flash_attn_interface.py").write_text("flash_attn_func = None")
    assert doctor_software.flash_attention().finding == "fa3 can be imported"
    monkeypatch.delattr(sys.modules["flash_attn_interface"], "flash_attn_func")
    assert doctor_software.flash_attention().state == PROBLEM
    del sys.modules["flash_attn_interface"]


def test_packages_that_are_missing_or_of_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = ["torch<2", "numpy", 'numba; extra == "codec"']
    monkeypatch.setattr(doctor_software, "requires", lambda name: wanted)
    found = doctor_software.packages()
    assert found.state == NOTE and found.finding == f"torch {importlib.metadata.version('torch')} is outside <2"
    wanted.append("surely-not-installed>=1")
    found = doctor_software.packages()
    assert found.state == PROBLEM and found.finding == "surely-not-installed not installed"
    monkeypatch.setattr(doctor_software, "metadata", lambda name: {"Requires-Python": ">=4"})
    assert doctor_software.python().state == PROBLEM


def test_a_torch_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert doctor_software.torch_itself().state == PROBLEM
    assert examine("GPU", doctor_gpus.gpus).state == NOTE


def test_codecs_and_wandb_that_are_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name, package=None: None)
    codecs = doctor_software.codecs()
    assert codecs.state == NOTE and "quant.codec=brotli and quant.codec=context" in codecs.finding
    assert "not installed" in doctor_software.wandb().finding


def test_slurm_answers_or_does_not(bin_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "not on this machine" in doctor_software.slurm().finding
    command(bin_folder, "sbatch", "")
    command(bin_folder, "sinfo", "gpu*\ncpu")
    monkeypatch.setattr("importlib.util.find_spec", lambda name, package=None: None)
    assert doctor_software.slurm().finding == "partitions gpu*, cpu, but submitit is not installed"
    command(bin_folder, "sinfo", "slurm_load_partitions: Unable to contact slurm controller", 1)
    assert "Unable to contact slurm controller" in doctor_software.slurm().finding


def test_disks_that_are_full_or_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOLF_RUNS", str(tmp_path / "new" / "runs"))
    monkeypatch.setattr(doctor_storage.shutil, "disk_usage", lambda path: Usage(1, 1, 5_000_000_000))
    assert doctor_storage.runs_disk().state == OK and not (tmp_path / "new").exists()
    monkeypatch.setattr(doctor_storage.shutil, "disk_usage", lambda path: Usage(1, 1, 5_000_000))
    assert doctor_storage.runs_disk().state == NOTE
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert doctor_storage.runs_disk().state == PROBLEM
    # Data that others have put there is read alone.
    monkeypatch.setattr(doctor_storage, "DATA", tmp_path)
    assert doctor_storage.data_disk().state == PROBLEM
    (tmp_path / "datasets" / "x").mkdir(parents=True)
    (tmp_path / "datasets" / "x" / "a_val_0.bin").touch()
    assert doctor_storage.data_disk().state == OK


def test_memory_is_what_the_control_group_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "CGROUP", tmp_path)
    total, free = system.memory_bytes(), system.free_memory_bytes()
    assert total and free and 0 < free <= total
    (tmp_path / "memory.max").write_text("max\n")
    assert system.memory_bytes() == total
    (tmp_path / "memory.max").write_text(str(100 << 20))
    (tmp_path / "memory.current").write_text(str(99 << 20))
    assert (system.memory_bytes(), system.free_memory_bytes()) == (100 << 20, 1 << 20)
    assert doctor_storage.memory().state == NOTE


def test_data_is_found_or_can_be_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fineweb = tmp_path / "datasets/fineweb10B_sp1024/fineweb_val_000000.bin"
    monkeypatch.setattr(hardware, "FINEWEB_VAL", fineweb)
    monkeypatch.setattr(doctor_storage, "DATA", tmp_path)
    assert "the first run builds data=pydocs" in doctor_storage.data().finding
    monkeypatch.setattr("golf.run.environment.package_version", lambda name: "0")
    assert doctor_storage.data().state == PROBLEM
    fineweb.parent.mkdir(parents=True)
    fineweb.touch()
    assert doctor_storage.data().state == NOTE
    (fineweb.parent / "fineweb_train_000000.bin").touch()
    assert doctor_storage.data().finding == "FineWeb sp1024 with 1 training shards"


def test_what_to_type_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def machine(gpus: int) -> None:
        found = hardware.Hardware(gpus, "", False, 2, cpu_bf16=False, cpu_compiler=True)
        monkeypatch.setattr(hardware, "detect", lambda: found)

    fine, slurm = Diagnosis(OK, "data", ""), Diagnosis(OK, "Slurm", "partitions gpu")
    monkeypatch.setattr(hardware, "FINEWEB_VAL", tmp_path / "val.bin")
    monkeypatch.setattr(doctor_command.shutil, "which", lambda name: None)
    machine(0)
    assert doctor_command.next_step([fine, slurm]) == "golf train"
    monkeypatch.setattr(doctor_command.shutil, "which", lambda name: name)
    assert doctor_command.next_step([fine, slurm]).startswith("golf submit ")
    machine(8)
    assert doctor_command.next_step([fine, slurm]).startswith("golf data get")
    (tmp_path / "val.bin").touch()
    assert doctor_command.next_step([fine]) == "golf train experiment=naive_baseline"
    broken = Diagnosis(PROBLEM, "packages", "numpy not installed", "run `pip install -e .`")
    assert doctor_command.next_step([fine, broken]) == "run `pip install -e .`; then `golf doctor` again"
