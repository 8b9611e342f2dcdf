"""`golf why A B`: the settings in which runs, variants and lists of overrides differ."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from golf.report.why import why
from golf.run.folder import create_run_folder
from golf.run.identity import variant_id
from tests.support import compose, golf_command


def lines(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert why(arguments) == 0
    return capsys.readouterr().out.splitlines()


def test_two_lists_of_overrides(capsys: pytest.CaptureFixture[str]) -> None:
    shown = lines(capsys, "scale=laptop tech=[xsa] seed=3", "scale=laptop optim.matrix_lr=0.02 data.shard_order=[1]")
    assert shown[0].startswith("two variants, ") and shown[0].endswith("they differ in")
    assert "  optim.matrix_lr: 0.04 → 0.02" in shown and "  data.shard_order: [] → [1]" in shown
    assert "  tech.xsa.last_n: 4 → –" in shown and not any(line.startswith("  tech:") for line in shown)
    split = shown.index("different, but no part of the variant:")
    assert shown.index("  seed: 3 → 1337") > split > shown.index("  optim.matrix_lr: 0.04 → 0.02")


def test_one_variant_under_two_names(capsys: pytest.CaptureFixture[str]) -> None:
    base = "model=9l scale=laptop"
    shown = lines(capsys, "experiment=naive_baseline scale=laptop", f"{base} optim.matrix_lr=4e-2")
    assert shown[0].startswith("one variant, ") and '  name: "naive_baseline" → "9l-int8"' in shown
    assert lines(capsys, base, base) == [f"one variant, {variant_id(compose(base.split()))}"]


def test_runs_variants_and_folders(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (compose(["scale=laptop", f"seed={seed}", f"optim.matrix_lr=0.0{seed}"]) for seed in (1, 2))
    one, other = (create_run_folder(cfg, []).path for cfg in (first, second))
    environment = json.loads((other / "environment.json").read_text())
    environment["packages"]["torch"] = "2.99"
    (other / "environment.json").write_text(json.dumps(environment))
    ways = [
        (str(one), str(other)),
        (str(one.parent), str(other / "config.json")),
        (variant_id(first), other.parent.name),
        (str(one), "scale=laptop seed=2 optim.matrix_lr=0.02"),
    ]
    shown = [lines(capsys, *way) for way in ways]
    for found in shown:
        assert found[1] == "  optim.matrix_lr: 0.01 → 0.02" and "  seed: 1 → 2" in found
    assert any("packages.torch" in line and '"2.99"' in line for line in shown[0])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "Name two things to compare"),
        (["seed=1", "optim.matrix_lrr=1"], "did you mean matrix_lr?"),
        (["deadbeef", "seed=1"], "There is no variant deadbeef"),
        (["conf", "seed=1"], "is not the folder of a run or a variant"),
        (["seed='", "seed=1"], "cannot be read"),
    ],
)
def test_sides_that_cannot_be_compared(arguments: list[str], sentence: str, runs: Path) -> None:
    done = golf_command("why", *arguments)
    assert done.returncode == 2 and done.stderr.startswith("error: ") and sentence in done.stderr
