"""The ternary record and the run with Gated DeltaNet, from the plan to the audit of an exported run, at tiny size."""

from __future__ import annotations

from pathlib import Path

import pytest
import safetensors.torch

from golf.commands import cli
from golf.field.folder_audit import audit
from golf.lab.corpora.own_text import OwnDataset
from golf.run.result import OK, read_result
from golf.settings.composition import rules_named
from tests.support import further, golf_command, golf_main, tiny_overrides

TERNARY, DELTA_NET = "records/2026-03-24_ternary_unet", "notable/2026-04-28_gated_deltanet"
PRESETS = [TERNARY, further(DELTA_NET)]
SHAPE = ["model.model_dim=32", "model.num_heads=4", "model.num_kv_heads=2"]


def tiny_run(experiment: str, tiny: OwnDataset) -> list[str]:
    """Return the overrides of a run of a few steps of `experiment` on the made-up text."""
    # The preset keeps its layers and its warm-down. Windows and chunks fit into rows of 32 tokens.
    own = [o for o in tiny_overrides(tiny) if not o.startswith(("model=4l", "schedule.warmdown"))]
    short = ["eval.stride=16", "quant.codec_level=1"]
    if experiment == DELTA_NET:
        short += ["eval.ttt.chunk_tokens=1024", "quant.calibration.tokens=512"]
    return [f"experiment={experiment}", *own, *SHAPE, *short]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("experiment", "parameters", "is_over"), [further(TERNARY, "67,394,384", False), (DELTA_NET, "35,173,464", True)]
)
def test_the_plan_has_its_parameters_and_says_whether_it_fits(experiment: str, parameters: str, is_over: bool) -> None:
    done = golf_command("plan", f"experiment={experiment}", "scale=record", "--on", "8xh100")
    (row,) = (line for line in done.stdout.splitlines() if line.startswith("│ all "))
    assert parameters in row and ("OVER THE CAP" in done.stdout) == is_over, done.stdout + done.stderr
    assert "are unknown" not in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("experiment", PRESETS)
def test_a_run_is_exported_rehearsed_and_audited(
    experiment: str, tiny: OwnDataset, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = golf_main(*tiny_run(experiment, tiny), "rules.code_bytes=exact")
    assert done.returncode == 0, done.stderr
    (folder,) = runs.glob("*/seed*")
    result = read_result(folder / "result.json")
    assert result.state == OK
    target = tmp_path / "submission"
    who = ["--author", "A. Golfer", "--github-id", "agolfer"]
    assert cli.main(["export", str(folder.parent), *who, "--wrap", "--text", "own", "--out", str(target)]) == 0
    # The export trains its script beside the framework.
    assert f"bytes of artifact\n{target}: 1 seed" in capsys.readouterr().out
    found = audit(target, None, rules_named("house"))
    # The made-up text is not FineWeb.
    assert [fault for fault in found.faults if "bytes of text" not in fault] == []
    assert len(found.in_order) > 3 and (target / "train_gpt.py").stat().st_size == result.code_bytes


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("experiment", [TERNARY, DELTA_NET])
def test_two_ranks_train_as_one_does(experiment: str, tiny: OwnDataset, runs: Path) -> None:
    for nproc in (1, 2):
        done = golf_main(*tiny_run(experiment, tiny), f"launch.nproc={nproc}", f"name=ranks{nproc}")
        assert done.returncode == 0, done.stderr
    one, two = (
        safetensors.torch.load_file(next(runs.glob(f"ranks{n}-*/seed*")) / "final_model.safetensors") for n in (1, 2)
    )
    # Of whole tensors: near a threshold of the network, single weights follow the processor's order of sums.
    for name, tensor in one.items():
        assert (two[name].float() - tensor.float()).norm() <= 1e-3 * tensor.float().norm() + 1e-6, name
