"""Two real ranks whose clocks run at different speeds: they ask for the same, end alike and write what is theirs."""

from __future__ import annotations

from pathlib import Path

import pytest

from golf.lab.corpora.own_text import OwnDataset
from golf.run.result import read_result
from tests.launch.test_finishing import CASES
from tests.support import golf_main, only_run, tiny_overrides
from tests.watched_ranks import collectives, watched_environment, written

# The clock says how long to train, to calibrate and to tune, and when to save.
CLOCKED = [
    *("schedule.iterations=300", "budget.train_seconds=5", "launch.speed_steps=2", "launch.checkpoint_seconds=0.5"),
    *("quant.calibration.reserve_seconds=1", "quant.tune.reserve_seconds=1", "rules.failed_check=stop"),
    "budget.grace_seconds=600",  # on a machine that does other work
]
FORMS = {
    "own text, lawa": ["optim=parallel_muon", "optim.grad_clip_norm=0.3"],
    # More steps than the seconds allow.
    "tuned": ["quant.tune.steps=20000"],
    "trellis, late switch": ["quant.retrain.steps=2000"],
}


@pytest.mark.slow
@pytest.mark.parametrize("case", ["own text, lawa", "tuned", "trellis, late switch", "ternary, ttt"])
def test_ranks_agree_whatever_their_clocks_say(
    case: str, tiny: OwnDataset, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in watched_environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    overrides = [*tiny_overrides(tiny), *CASES[case], *FORMS.get(case, []), *CLOCKED]
    done = golf_main(*overrides, "launch.nproc=2")
    assert done.returncode == 0, done.stderr
    folder = only_run(runs)
    result = read_result(folder / "result.json")
    assert result.state == "ok" and not [said for said in result.warnings if "between ranks" in said]
    first, second = (collectives(tmp_path, rank) for rank in (0, 1))
    assert first == second and len(first) > 2 * result.steps
    assert len((runs / "speeds.jsonl").read_text().splitlines()) == 1
    own = written(tmp_path, 1, runs)
    # Of a checkpoint each rank writes its part.
    assert own and {path for path in own if "/checkpoint/" not in path or "rank1" not in path} == set()
    assert written(tmp_path, 0, folder) > {"result.json"}
