"""A machine's faults are named with a remedy, and no process is ever ended."""

import errno
import os
from pathlib import Path
from unittest.mock import Mock

import pytest

from golf.errors import GolfError, MissingError
from golf.files import write_json
from golf.lab.corpora.own_text import OwnDataset
from golf.lab.plan.lines import lines_before_run
from golf.launch import preflight
from golf.launch.preflight import busy_gpus, check_inputs, check_machine
from golf.run.environment import package_versions
from golf.run.folder import RunFolder
from golf.run.locks import lock_file
from golf.settings import hardware
from golf.settings.config import Config
from golf.settings.hardware import Hardware
from tests.support import compose, golf_main, tiny_overrides


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of a stand-in for nvidia-smi, first in the PATH. `lists` sets what it prints."""
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    return program


def lists(program: Path, *lines: str) -> None:
    """Let the stand-in list two GPUs, and `lines` of processes."""
    gpus, processes = ("".join(f"echo '{line}'\n" for line in part) for part in (("0, GPU-aa", "1, GPU-bb"), lines))
    program.write_text(f"#!/bin/sh\nif [ $1 = --query-gpu=index,uuid ]; then\n{gpus}else\n{processes}true\nfi\n")
    program.chmod(0o755)


def test_processes_on_the_gpus_are_listed(nvidia_smi: Path) -> None:
    lists(nvidia_smi, "GPU-aa, 4711, 38012, /usr/bin/python, old", "GPU-aa, 12, 4, Xorg", "GPU-bb, 13, [N/A], ghost")
    (sentence,) = busy_gpus()
    assert sentence.startswith("process 4711 (/usr/bin/python, old) holds 38012 MiB")


@pytest.mark.parametrize(("visible", "found"), [(None, 2), ("0", 1), ("1", 1), ("1,0", 2), ("GPU-bb", 1), ("", 0)])
def test_only_gpus_of_this_share_count(
    visible: str | None, found: int, nvidia_smi: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of eight jobs of a sweep named the seven others as processes to end."""
    lists(nvidia_smi, "GPU-aa, 4711, 38012, python", "GPU-bb, 4712, 38012, python")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert len(busy_gpus()) == found


def test_a_run_does_not_accuse_itself_or_its_sweep(nvidia_smi: Path) -> None:
    pids = (os.getpid(), os.getppid(), 99_999_999)
    lists(nvidia_smi, *(f"GPU-aa, {pid}, 500, python" for pid in pids))
    (sentence,) = busy_gpus()
    assert "process 99999999" in sentence


def test_without_a_driver_nothing_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert busy_gpus() == []


@pytest.mark.parametrize("flags", [[], ["-m"]])
def test_cuda_without_a_gpu_is_refused_before_a_folder_is_made(
    flags: list[str], tiny: OwnDataset, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = Hardware(gpus=0, gpu_name="", hopper=False, cpu_cores=2, cpu_bf16=False, cpu_compiler=True)
    monkeypatch.setattr(hardware, "detect", lambda: without)
    done = golf_main(*flags, *tiny_overrides(tiny), "launch.device=cuda")
    assert done.returncode == 2 and not list(runs.glob("*/seed*"))
    sentences = [line for line in (done.stdout + done.stderr).splitlines() if "no CUDA GPU" in line]
    assert len(sentences) == 1 and "use launch.device=auto" in sentences[0]


def test_a_fit_machine_has_no_warnings(tiny_cfg: Config, tmp_path: Path) -> None:
    assert check_machine(tiny_cfg, tmp_path) == []


def test_harmful_settings_are_named_and_refused_if_wanted(
    tiny_cfg: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_IB_DISABLE", "1")
    (sentence,) = check_machine(tiny_cfg, tmp_path)
    assert sentence.startswith("NCCL_IB_DISABLE=1")
    tiny_cfg.launch.unfit = "refuse"
    with pytest.raises(GolfError, match=r"not fit for a run: NCCL_IB_DISABLE=1 .* \(launch\.unfit=warn"):
        check_machine(tiny_cfg, tmp_path)


def test_a_full_disk_is_named(tiny_cfg: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "FREE_BYTES", 1 << 60)
    (sentence,) = check_machine(tiny_cfg, tmp_path)
    assert "GB are free" in sentence


def test_a_file_system_without_locks_is_named(
    tiny_cfg: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = lock_file(RunFolder(tmp_path).lock)
    assert lock
    with lock:
        assert check_machine(tiny_cfg, tmp_path) == []
        # What the kernel says for a Lustre that is mounted without `flock`.
        monkeypatch.setattr("fcntl.flock", Mock(side_effect=OSError(errno.ENOSYS, "")))
        (sentence,) = check_machine(tiny_cfg, tmp_path)
        assert "carries no locks: start no run a second time" in sentence


def test_versions_are_those_of_the_snapshot(tiny_cfg: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "ROOT", tmp_path)
    write_json(tmp_path / "snapshot.json", {"packages": package_versions()})
    assert check_machine(tiny_cfg, tmp_path) == []
    write_json(tmp_path / "snapshot.json", {"packages": {**package_versions(), "torch": "1.0"}})
    (sentence,) = check_machine(tiny_cfg, tmp_path)
    assert sentence.startswith("torch is ") and "was 1.0 where the sweep was submitted" in sentence


def test_shards_are_counted_against_the_manifest(tiny_cfg: Config, tmp_path: Path) -> None:
    folder = tmp_path / "datasets" / "fineweb10B_sp1024"
    folder.mkdir(parents=True)
    (folder / "fineweb_train_000000.bin").touch()
    tiny_cfg.data.path = str(folder)
    tiny_cfg.data.train_files = "fineweb_train_*.bin"
    stats = {"name": folder.name, "stats": {"files_train": 80}}
    write_json(folder.parent / "manifest.json", {"datasets": [stats]})
    (sentence,) = check_machine(tiny_cfg, tmp_path)
    assert sentence.startswith("1 of the 80 published training shards")


def test_nothing_is_said_to_be_built_beside_a_foreign_tokenizer(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(GolfError, match=r"data\.tokenizer_path=/no/such does not exist"):
        check_inputs(compose(["scale=laptop", "launch.device=cpu", "data.tokenizer_path=/no/such"]))
    assert capsys.readouterr().out == ""


def test_a_missing_codec_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(codec: str) -> None:
        raise MissingError("quant.codec=context needs numba")

    monkeypatch.setattr("golf.artifact.container.require_codec", refuse)
    cfg = compose(["scale=laptop", "launch.device=cpu", "quant.codec=context"])
    assert lines_before_run(cfg) == []
