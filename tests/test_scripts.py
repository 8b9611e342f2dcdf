"""Scripts from the command line; get_data and from_env have their own files."""

import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from golf.commands import gpu_check_command, gpu_measurement, gpu_ranks
from golf.commands.gpu_check_command import PRESETS
from golf.commands.gpu_presets import Measured
from golf.errors import GolfError
from golf.lab.corpora.own_text import OwnDataset
from golf.training.model.documents import PieceAttention
from tests.support import ROOT, golf_main, make_text, tiny_overrides


def golf(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "golf", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [
        ("dashboard", "wandb_workspaces", "wandb"),
        ("dev/build_docs", "mkdocs", "docs"),
    ],
)
def test_a_missing_extra_is_one_sentence(name: str, package: str, extra: str) -> None:
    hidden = f"import sys, runpy; sys.modules[{package!r}] = None; sys.argv = ['x', 'y']; runpy.run_path"
    command = [sys.executable, "-c", f"{hidden}('scripts/{name}.py', run_name='__main__')"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert f"{package}, which is not installed: pip install" in done.stderr and f"[{extra}]" in done.stderr


@pytest.mark.slow
def test_tokenize_docs_prints_a_command_that_trains(tmp_path: Path, runs: Path) -> None:
    lines = [json.dumps({"text": make_text(8, seed)}) for seed in range(40)]
    (tmp_path / "docs.jsonl").write_text("\n".join(lines))
    file, root = str(tmp_path / "docs.jsonl"), ("--root", str(tmp_path))
    done = golf("data", "tokenize", file, "--name", "mine", "--vocab-size", "320", *root)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("40 documents, ")
    (command,) = (line.split() for line in done.stdout.splitlines() if line.startswith("python golf/train.py "))
    small = [*("schedule.iterations=2", "budget.train_seconds=0", "model.model_dim=32", "launch.threads=1")]
    small += [
        "data.train_batch_tokens=256",
        "data.train_seq_len=32",
        "data.micro_batches=1",
        "eval.val_batch_tokens=256",
    ]
    assert golf_main("scale=laptop", *command[2:], *small).returncode == 0
    again = golf("data", "tokenize", file, "--name", "mine", *root)
    assert again.returncode == 2 and "exists already" in again.stderr and "Traceback" not in again.stderr


@pytest.mark.slow
def test_the_first_hour_on_a_gpu_is_rehearsed_on_a_cpu(tiny: OwnDataset, runs: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.md"
    options = ["--device", "cpu", "--steps", "2", "--train-seconds", "1", "--report", str(report)]
    # The other presets are rehearsed as scripts.
    presets = ["naive_baseline", "records/2026-04-27_caseops_lqer_9hp"]
    assert {*presets} < {*PRESETS}
    options += ["--presets", ",".join(presets)]
    # The presets say how many layers they have.
    small = [override for override in tiny_overrides(tiny) if override != "model=4l"]
    command = [sys.executable, "-m", "golf.commands.cli", "doctor", "--gpu", *options, *small]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    text = report.read_text()
    assert text in done.stdout  # and before it the lines of `golf doctor`
    assert "| attention=sdpa equals float64 | yes |" in text and "send this report" in text
    assert "| fp32 equals the CPU | yes |" in text and "| compiles once, fullgraph | yes |" in text
    assert "| two ranks sum alike (gloo) | yes | 68 MB in " in text
    assert "ended with status 0" in text and "bits per byte" in text
    for preset in presets:
        (row,) = (line for line in text.splitlines() if line.startswith(f"| {preset} |"))
        assert row.endswith("| yes |")


def test_a_preset_that_fails_costs_its_row_and_none_begins_too_late(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = gpu_check_command.Report(tmp_path / "report.md")
    assert all((ROOT / f"conf/experiment/{preset}.yaml").is_file() for preset in PRESETS)
    presets, cpu = ["no_such_one", "naive_baseline"], torch.device("cpu")
    assert not gpu_check_command._presets(presets[:1], [], cpu, 1, time.monotonic() + 60, report)
    assert gpu_check_command._presets(presets, [], cpu, 1, time.monotonic(), report)
    text = (tmp_path / "report.md").read_text()
    assert text == capsys.readouterr().out
    assert "| no_such_one | 0.0 |  |  |  | nan | NO: GolfError: experiment=no_such_one does not exist" in text
    assert text.endswith("Not tried, because --minutes were over: no_such_one, naive_baseline.\n")


FAILING = ("check_numbers", "check_kernels", "check_compiling", "check_two_ranks", "step_row")


@pytest.mark.parametrize("failing", [None, *FAILING])
def test_a_check_that_fails_costs_its_row_and_those_before_are_kept(
    failing: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each in turn ends with an error that libraries raise, behind a row of its own where it has several."""
    file = tmp_path / "report.md"

    def rows(name: str, *_: object) -> Iterator[tuple[str, bool, str]]:
        yield f"{name} began", True, "as it should"
        # What came before is in the file already.
        assert f"| {name} began | yes |" in file.read_text()
        if name == failing:
            raise AssertionError("no kernel image | is available\nfor execution")

    def one(name: str, row: object) -> object:
        if name == failing:
            raise ValueError("it fails")
        return row

    for name in FAILING[:3]:
        monkeypatch.setattr(gpu_measurement, name, partial(rows, name))
    monkeypatch.setattr(
        gpu_ranks, "check_two_ranks", lambda *_: one("check_two_ranks", ("check_two_ranks began", True, ""))
    )
    monkeypatch.setattr(gpu_measurement, "step_row", lambda *given: one("step_row", f"| compile={given[-1]} | 1.0 |"))
    options = ["--device=cpu", "--train-seconds=0", "--presets=none", f"--report={file}"]
    assert gpu_check_command.main(options) == (1 if failing else 0)
    text = file.read_text()
    for name in FAILING[:4]:
        assert (f"| {name} began | yes |" in text) == (name != failing or name in FAILING[:3])
    assert ("| NO |" in text or "| NO: " in text) == bool(failing) and "minutes in all" in text
    if failing in FAILING[:3]:
        assert "| NO | AssertionError: no kernel image / is available for execution |" in text


def test_torchs_own_attention_has_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, plain = torch.device("cpu"), PieceAttention.__call__
    rows = ["attention=sdpa equals float64", "attention=sdpa by document equals float64"]
    assert [(what, ok) for what, ok, _ in gpu_measurement.check_kernels(cpu)] == [(row, True) for row in rows]

    def fail(attend: PieceAttention, q: torch.Tensor, *others: Any) -> torch.Tensor:
        if q.dtype == torch.bfloat16:
            raise RuntimeError("no kernel takes a mask")
        return plain(attend, q, *others)

    monkeypatch.setattr(PieceAttention, "__call__", fail)
    first, second = gpu_measurement.check_kernels(cpu)
    assert first[1] and second == (rows[1].removesuffix(" equals float64"), False, second[2])
    assert second[2] == "cannot be used: RuntimeError: no kernel takes a mask"


@pytest.mark.parametrize(
    ("mib", "loss", "problem"),
    [(10_184.0, 6.9, ""), (13_000.0, 6.9, "memory"), (7_000.0, 6.9, "memory"), (None, math.nan, "no number")],
)
def test_memory_is_held_against_the_plan(mib: float | None, loss: float, problem: str) -> None:
    measured = Measured("naive_baseline", 43.5, 44.8, mib, 10_214.0, loss)
    assert problem in measured.problem and bool(problem) == bool(measured.problem)
    assert ("NO" in measured.row) == bool(problem) and "| 43.5 | 44.8 |" in measured.row


@pytest.mark.parametrize(
    ("option", "sentence"),
    [("--steps=0", "--steps 0 leaves nothing to time"), ("--report=missing/gpu.md", "its folder does not exist")],
)
def test_a_check_that_could_not_report_does_not_begin(option: str, sentence: str) -> None:
    with pytest.raises(GolfError, match=sentence):
        gpu_check_command.main(["--device=cpu", option])
