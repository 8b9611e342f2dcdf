"""Each product can be deleted: a run still ends with its score, and a command that needs the product says so."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from golf.lab.corpora.own_text import OwnDataset
from golf.training.services import NOT_PROVED, UNKNOWN_CODE
from tests.support import ROOT, tiny_overrides
from tests.test_layers import PRODUCTS

LACKS = {"lab": {NOT_PROVED}, "submission": {UNKNOWN_CODE}}  # warnings of a run without the product
AUTHOR = ["--author", "A", "--github-id", "a"]
NEEDS = {"lab": ["report", "x"], "field": ["import", "."], "submission": ["export", "x", *AUTHOR]}


def run(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    variables = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    variables |= {"GOLF_RUNS": str(checkout / "multirun"), "PYTHONPATH": str(checkout)}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=checkout, env=variables)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the repository's programs."""
    for name in ("golf", "conf", "hydra_plugins", "ideas"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    # Else what is deleted here would be found in the installed checkout.
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nsys.meta_path[:] = [f for f in sys.meta_path if 'Editable' not in getattr(f, '__name__', '')]\n"
    )
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("product", PRODUCTS)
def test_a_run_does_without(product: str, checkout: Path, tiny: OwnDataset) -> None:
    shutil.rmtree(checkout / "golf" / product)
    done = run(checkout, "golf/train.py", *tiny_overrides(tiny), "name=left")
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = (checkout / "multirun").glob("left-*/seed*/result.json")
    result = json.loads(file.read_text())
    assert result["state"] == "ok" and result["post_quant"]["val_bpb"] > 1
    assert LACKS.get(product, set()) == {NOT_PROVED, UNKNOWN_CODE} & set(result["warnings"])
    # Without the commands there is no program that could say anything.
    if product in NEEDS:
        missing = run(checkout, "-m", "golf", *NEEDS[product])
        assert missing.stderr == f"error: This needs golf/{product}, which is not here: check it out again.\n"
        assert missing.returncode == 2


@pytest.mark.slow
def test_a_run_does_without_all_products(checkout: Path, tiny: OwnDataset) -> None:
    for product in PRODUCTS:
        shutil.rmtree(checkout / "golf" / product)
    done = run(checkout, "golf/train.py", *tiny_overrides(tiny), "name=bare")
    assert done.returncode == 0, done.stdout + done.stderr
    sweep = run(checkout, "golf/train.py", "-m", *tiny_overrides(tiny), "seed=1,2")
    assert sweep.returncode == 2 and "This needs golf/lab, which is not here" in sweep.stderr, sweep.stderr
