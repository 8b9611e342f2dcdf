"""Scripts from the command line; get_data and from_env have their own files."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT, golf_main, make_text


def golf(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "golf", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=900)


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
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=900)
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
def test_a_bundle_runs_without_a_network(tmp_path: Path) -> None:
    """Its packages, and not those of this environment, run the program; its text is in the place of the data."""
    bundle, checkout = tmp_path / "bundle", tmp_path / "checkout"
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    script = [sys.executable, "scripts/dev/offline_bundle.py", str(bundle), "--python", own]
    made = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert made.returncode == 0 and f"sh {bundle}/start.sh" in made.stdout, made.stderr
    again = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert again.returncode == 2 and again.stderr.endswith("is there already: remove it first.\n")
    for folder in ("golf", "conf", "ideas", "hydra_plugins"):
        shutil.copytree(ROOT / folder, checkout / folder)
    # As the start script sees a machine whose own packages are torch and little else.
    program = "import hydra, omegaconf, rich, golf; print(hydra.__file__, golf.__file__)"
    start = ["sh", str(bundle / "start.sh"), sys.executable, "-c", program]
    environment = {**os.environ, "PYTHON": sys.executable, "PIP_INDEX_URL": "http://127.0.0.1:1/simple"}
    done = subprocess.run(start, cwd=checkout, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    hydra, golf = done.stdout.split()
    assert Path(hydra).is_relative_to(bundle) and Path(golf).is_relative_to(checkout)
    assert list(checkout.glob("data/datasets/pydocs_*/*.bin")) and list(checkout.glob("data/tokenizers/*.model"))
    elsewhere = subprocess.run(start, cwd=tmp_path, capture_output=True, text=True)
    assert elsewhere.returncode == 2 and "in the root of a checkout" in elsewhere.stderr
