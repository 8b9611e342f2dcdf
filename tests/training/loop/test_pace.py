"""A machine is held against earlier runs on its kind: the first only records, a slow one is named or refused."""

import json
from pathlib import Path

import pytest

from golf.lab.corpora.own_text import OwnDataset
from golf.lab.report.rows import row_of
from golf.run.result import CRASHED, OK, read_result
from golf.training.loop.pace import SLOW, Speed
from tests.support import golf_main, tiny_overrides


@pytest.mark.parametrize(
    "step_ms, reference_ms, slow", [(100.0, None, False), (114.0, 100.0, False), (116.0, 100.0, True)]
)
def test_slow_is_beyond_the_median_of_earlier_runs(step_ms: float, reference_ms: float | None, slow: bool) -> None:
    assert SLOW == 1.15
    assert (Speed(step_ms, reference_ms, 3).warning is not None) == slow


@pytest.mark.slow
def test_history_decides(tiny: OwnDataset, runs: Path) -> None:
    history = runs / "speeds.jsonl"
    golf_main(*tiny_overrides(tiny), "launch.speed_steps=3")
    (first,) = map(json.loads, history.read_text().splitlines())
    assert first["step_ms"] > 0
    results = [read_result(p) for p in runs.glob("*/seed*/result.json")]
    assert [r.state for r in results] == [OK] and not any("slow machine" in w for w in results[0].warnings)

    fast = {**first, "step_ms": first["step_ms"] / 1000}
    other_work = {**fast, "work": "another"}
    history.write_text("\n".join(map(json.dumps, [fast, other_work, fast])) + "\n{cut off")
    golf_main(*tiny_overrides(tiny), "launch.speed_steps=3", "seed=2")
    (slow,) = (read_result(p) for p in runs.glob("*/seed2/result.json"))
    assert slow.state == OK
    (warning,) = (w for w in slow.warnings if "slow machine" in w)
    assert "the median of 2 earlier runs" in warning
    assert f"{slow.slowdown:.2f} times" in warning
    (folder,) = runs.glob("*/seed2")
    assert row_of(folder).slowdown == slow.slowdown

    golf_main(*tiny_overrides(tiny), "launch.speed_steps=3", "seed=3", "launch.unfit=refuse")
    (refused,) = (read_result(p) for p in runs.glob("*/seed3/result.json"))
    assert refused.state == CRASHED and "launch.unfit=warn" in refused.reason
