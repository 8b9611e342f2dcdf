"""Scripts from the command line; get_data and from_env have their own files."""

import json
import math
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from golf.commands import gpu_check_command
from golf.commands.gpu_check_command import PRESETS
from golf.commands.gpu_presets import Measured
from golf.errors import GolfError
from golf.training.data.own_text import OwnDataset
from tests.support import ROOT, golf_main, make_text, tiny_overrides


def script(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, f"scripts/{name}.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)


@pytest.mark.slow
def test_tokenize_docs_prints_a_command_that_trains(tmp_path: Path, runs: Path) -> None:
    lines = [json.dumps({"text": make_text(8, seed)}) for seed in range(40)]
    (tmp_path / "docs.jsonl").write_text("\n".join(lines))
    done = script(
        "tokenize_docs", str(tmp_path / "docs.jsonl"), "--name", "mine", "--vocab-size", "320", "--root", str(tmp_path)
    )
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
    again = script("tokenize_docs", str(tmp_path / "docs.jsonl"), "--name", "mine", "--root", str(tmp_path))
    assert again.returncode == 2 and "exists already" in again.stderr and "Traceback" not in again.stderr


PUBLIC = """
import os, torch
model = torch.nn.Linear(4, 4).to(torch.device("cuda", 0))
for step in range(1, int(os.environ["ITERATIONS"]) + 1):
    loss = model(torch.randn(2, 4)).square().mean()
    loss.backward()
    print(f"step:{step}/9 train_loss:{loss.item():.4f} train_time:1ms step_avg:1.00ms")
"""


@pytest.mark.slow
def test_the_first_hour_on_a_gpu_is_rehearsed_on_a_cpu(tiny: OwnDataset, runs: Path, tmp_path: Path) -> None:
    (tmp_path / "train_gpt.py").write_text(PUBLIC)
    report = tmp_path / "report.md"
    options = ["--device", "cpu", "--steps", "2", "--train-seconds", "1", "--report", str(report)]
    # The other presets are rehearsed as scripts.
    presets = ["naive_baseline", "records/2026-04-27_caseops_lqer_9hp"]
    assert {*presets} < {*PRESETS}
    options += ["--against", str(tmp_path), "--presets", ",".join(presets)]
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
    assert "× the public script's tokens/s" in text
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
