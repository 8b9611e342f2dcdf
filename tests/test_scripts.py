"""Scripts from the command line; get_data and from_env have their own files."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from golf.training.data.own_text import OwnDataset
from tests.support import ROOT, golf_main, make_text, tiny_overrides


def script(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, f"scripts/{name}.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)


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


@pytest.mark.slow
def test_gpu_check_runs_through_on_a_cpu(tiny: OwnDataset, runs: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.md"
    options = ["--device", "cpu", "--steps", "2", "--train-seconds", "1", "--report", str(report)]
    command = [sys.executable, "-m", "golf.commands.cli", "doctor", "--gpu", *options, *tiny_overrides(tiny)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    text = report.read_text()
    assert "| attention=sdpa equals float64 | yes |" in text and "send this report" in text
    assert "| fp32 equals the CPU | yes |" in text and "| compiles once, fullgraph | yes |" in text
    assert "ended with status 0" in text and "bits per byte" in text
