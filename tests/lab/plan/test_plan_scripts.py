"""plan, inspect_artifact and quant_gap from the command line, on a real run."""

import json
from pathlib import Path

import pytest

from golf.lab.corpora.own_text import OwnDataset
from tests.support import golf_command, golf_main, only_run, tiny_overrides


@pytest.fixture
def finished(tiny: OwnDataset, runs: Path) -> Path:
    done = golf_main(*tiny_overrides(tiny))
    assert done.returncode == 0, done.stderr
    assert "plan: " in done.stdout and "TFLOP a step; 6 steps" in done.stdout
    # A plan takes nothing from a run on a busy machine, which this one may be.
    folder = only_run(runs)
    result = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps({**result, "core_share": 1.0, "eval_core_share": 1.0}))
    return folder


@pytest.mark.slow
def test_a_run_planned_taken_apart_and_quantized_again(
    finished: Path, tiny: OwnDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = json.loads((finished / "result.json").read_text())
    plan = golf_command("plan", "--json", *tiny_overrides(tiny))
    assert plan.returncode == 0, plan.stderr
    planned = json.loads(plan.stdout)
    assert planned["params"] == result["model_params"]
    assert planned["steps"] == [6, 6, 6] and planned["step_ms"] == pytest.approx([result["step_ms"]] * 3)
    assert planned["artifact_bytes"][0] < result["artifact_bytes"] < planned["artifact_bytes"][2]

    shown = golf_command("inspect", str(finished / "artifact.golf"))
    assert shown.returncode == 0 and "all embed" in shown.stdout and "order-0 entropy" in shown.stdout
    taken = json.loads(golf_command("inspect", str(finished / "artifact.golf"), "--json").stdout)
    coded = max(tensor["coded_bytes"] for tensor in taken["tensors"])
    monkeypatch.setenv("COLUMNS", "44")
    for command, whole in (
        (["inspect", str(finished / "artifact.golf")], f"{coded:,.0f}"),
        (["plan", *tiny_overrides(tiny)], f"{planned['params']:,}"),
    ):
        narrow = golf_command(*command).stdout
        box = [line for line in narrow.splitlines() if line.startswith(("│", "┃", "└"))]
        assert max(map(len, box)) <= 44 and "…" not in "".join(box) and f" {whole} │" in narrow
        assert "Left out for lack of width: " in narrow
    monkeypatch.delenv("COLUMNS")
    assert taken["file_bytes"] == result["artifact_bytes"]
    assert all(t["error"] is not None for t in taken["tensors"])

    gaps = golf_command("quant-gap", str(finished), "int8 quant.small_numel=256", "int6_mixed", "--json")
    assert gaps.returncode == 0, gaps.stderr
    first, second = json.loads(gaps.stdout)
    assert first["artifact_bytes"] == result["artifact_bytes"]
    assert first["gap_bpb"] == pytest.approx(result["quant_gap_bpb"], abs=1e-6)
    assert second["name"] == "int6_mixed"


def test_a_model_of_one_layer_is_planned_and_runs(tiny: OwnDataset, runs: Path) -> None:
    overrides = [*tiny_overrides(tiny), "model.num_layers=1"]
    done = golf_main(*overrides)
    assert done.returncode == 0 and "plan: none" not in done.stdout, done.stdout + done.stderr
    result = json.loads((only_run(runs) / "result.json").read_text())
    assert result["state"] == "ok"
    plan = golf_command("plan", "--json", *overrides)
    assert plan.returncode == 0 and json.loads(plan.stdout)["params"] == result["model_params"], plan.stderr


@pytest.mark.parametrize(
    "command, sentence",
    [
        (["plan", "model=12l"], "model=12l does not exist"),
        (["plan", "scale=laptop", "model=4l", "--solve", "optim.matrix_lr"], "fits everywhere"),
        (["plan", "scale=laptop", "--solve", "model.name"], "not a number above zero"),
        (["inspect", "README.md"], "is not an intact artifact"),
        (["inspect", "README.md", "--weights", "nowhere.pt"], "nowhere.pt does not exist"),
        (["quant-gap", "docs"], "is not the folder of a finished run"),
    ],
    ids=lambda x: "+".join(x) if isinstance(x, list) else "",
)
def test_mistakes_end_in_one_sentence(command: list[str], sentence: str, runs: Path) -> None:
    done = golf_command(*command)
    assert done.returncode == 2 and sentence in done.stderr and done.stderr.count("\n") == 1, done.stderr
