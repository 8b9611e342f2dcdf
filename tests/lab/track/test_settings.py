"""The settings of a mirror, and the choices that depend on the machine."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from golf.errors import GolfError
from golf.lab.track import companion
from golf.launch import launcher
from golf.run.identity import variant_id
from golf.run.sweeps import sweep_name
from golf.settings.composition import compose
from golf.settings.config import Config
from golf.settings.hardware import settle
from golf.settings.jobs_config import TrackConfig
from tests.wandb_server import KEY


@pytest.fixture(autouse=True)
def no_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_PROJECT", "WANDB_ENTITY", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))


def test_there_is_no_mirror_unless_asked_for() -> None:
    assert compose([]).track.backend == "none"


def test_a_mirror_is_no_part_of_a_variant_or_of_a_sweeps_name() -> None:
    mirrored = ["track=wandb", "track.mode=offline", "track.tags=[mine]"]
    assert variant_id(compose(mirrored)) == variant_id(compose([]))
    assert sweep_name("lr", ["a=1,2", *mirrored]) == sweep_name("lr", ["a=1,2"])


def test_online_where_a_key_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def settled() -> str:
        cfg = Config(track=TrackConfig(backend="wandb"))
        settle(cfg)
        return cfg.track.mode

    assert settled() == "offline"
    (tmp_path / "netrc").write_text(f"machine api.wandb.ai login user password {KEY}\n")
    assert settled() == "online"
    monkeypatch.setenv("WANDB_BASE_URL", "https://elsewhere.example")
    assert settled() == "offline"
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    assert settled() == compose(["track=wandb"]).track.mode == "online"
    assert compose(["track=wandb", "track.mode=offline"]).track.mode == "offline"


def test_wandbs_own_variables_are_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "disabled")
    monkeypatch.setenv("WANDB_PROJECT", "ours")
    monkeypatch.setenv("WANDB_ENTITY", "team")
    track = compose(["track=wandb"]).track
    assert (track.mode, track.project, track.entity) == ("disabled", "ours", "team")


@pytest.mark.parametrize("wrong", ["track.mode=onlin", "track.attach=[weights]", "track.finish_seconds=0"])
def test_a_mistake_is_one_sentence(wrong: str) -> None:
    with pytest.raises(GolfError, match=wrong.partition("=")[0]):
        compose(["track=wandb", wrong])


def test_a_missing_package_is_said_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(GolfError, match=r"pip install 'golf\[wandb\]'"):
        companion.check_installed()


def test_strict_rules_leave_the_machine_alone_while_the_clock_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(companion, "mirrored", lambda folder, track: seen.append(track.system_metrics))
    for rules in ("house", "strict"):
        launcher._mirror(compose(["track=wandb", f"rules={rules}"]), None)  # type: ignore[arg-type]
    assert seen == [True, False]
