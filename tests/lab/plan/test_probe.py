"""The probe of `golf plan --on here`: steps of the configuration itself, timed on this machine."""

from __future__ import annotations

import json

import pytest

from golf.errors import GolfError
from golf.lab.corpora.own_text import OwnDataset
from golf.lab.plan import probe
from golf.settings.config import Config
from golf.training.loop import pace
from golf.training.loop.state import TrainState
from tests.support import compose, golf_command, tiny_overrides


def test_a_plan_takes_the_step_time_of_a_probe(tiny: OwnDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[int] = []

    def counted(cfg: Config, state: TrainState, steps: int) -> list[float]:
        timed.append(steps)
        # The first steps compile and must not count.
        return [9.0] * probe.UNTIMED + pace.time_steps(cfg, state, steps)[probe.UNTIMED :]

    monkeypatch.setattr(probe, "time_steps", counted)
    overrides = [*tiny_overrides(tiny), "budget.train_seconds=60", "schedule.iterations=1000000"]
    done = golf_command("plan", *overrides, "--on", "here", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert timed == [probe.UNTIMED + probe.STEPS]
    assert "a probe of 20 steps on this machine" in json.dumps(found)
    low, expected, high = found["step_ms"]
    assert 0 < low <= expected <= high < 9000
    assert found["steps"][1] == int(60_000 / expected)


def test_several_ranks_have_no_probe(tiny: OwnDataset) -> None:
    with pytest.raises(GolfError, match="the configuration has 2 ranks"):
        probe.probed_step_time(compose([*tiny_overrides(tiny), "launch.nproc=2"]))
