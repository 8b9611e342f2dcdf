"""What a scale takes from an experiment is named; what it shrinks, and what the command line gives, is not."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from golf.settings import overruled
from golf.settings.overruled import replaced_by_scale
from tests.support import compose


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder of presets with the scales of conf/ and an experiment that builds on another."""
    (tmp_path / "experiment").mkdir()
    (tmp_path / "scale").symlink_to(overruled.CONF / "scale")
    below = {"schedule": {"warmdown_iters": "${steps:1200}"}, "data": {"train_batch_tokens": 8192}}
    (tmp_path / "experiment/below.yaml").write_text(yaml.safe_dump(below))
    top = {"defaults": ["below", {"override /model": "9l"}], "model": {"model_dim": 64}, "budget": {"grace_seconds": 2}}
    (tmp_path / "experiment/top.yaml").write_text(yaml.safe_dump(top))
    monkeypatch.setattr(overruled, "CONF", tmp_path)
    return tmp_path


def test_numbers_of_an_experiment_that_the_scale_replaces_are_named(own: Path) -> None:
    cfg = compose(["scale=laptop", "model=4l"])
    (said,) = replaced_by_scale(["experiment=top", "scale=laptop"], cfg)
    assert said == (
        "note: scale=laptop replaces data.train_batch_tokens=8192 by 2048, model.model_dim=64 by 112 of "
        "experiment=top: give one as an override to keep it"
    )


def test_what_the_command_line_gives_or_the_scale_leaves_is_not_named(own: Path) -> None:
    given = ["data.train_batch_tokens=8192", "model.model_dim=64"]
    assert replaced_by_scale(["experiment=top", *given], compose(["scale=laptop", "model=4l", *given])) == []
    assert replaced_by_scale(["experiment=top"], compose(["scale=record"])) == []
    assert replaced_by_scale(["model=4l"], compose(["scale=laptop", "model=4l"])) == []


def test_a_public_preset_at_a_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    overrides = ["experiment=gold6_11l", "scale=laptop"]
    cfg = compose(overrides)
    (said,) = replaced_by_scale(overrides, cfg)
    # The composition at the record's own scale tells the numbers independently of how the files are read.
    record = compose(["experiment=gold6_11l", "scale=record"])
    assert f"data.train_seq_len={record.data.train_seq_len} by {cfg.data.train_seq_len}" in said
