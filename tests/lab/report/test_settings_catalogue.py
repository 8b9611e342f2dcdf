"""The list of settings: complete, with a meaning each, and searchable."""

from __future__ import annotations

import pytest

from golf.lab.report.settings_catalogue import catalogue, found
from golf.settings.names import setting_keys
from tests.support import golf_command


def test_every_setting_is_listed_once() -> None:
    listed = [setting.key for group in catalogue() for setting in group.settings]
    assert sorted(listed) == sorted(setting_keys())


def test_default_choices_and_meaning_are_the_schemas() -> None:
    settings = {setting.key: setting for group in catalogue() for setting in group.settings}
    muon = settings["optim.muon"]
    assert (muon.default, muon.allowed) == ("sharded", "sharded | parallel")
    assert muon.meaning.startswith("form of Muon; sharded: over gradients")
    assert settings["schedule.min_lr"].allowed == "at least 0 and at most 1"
    assert settings["eval.ttt.lr"].default == "null" and settings["eval.ttt.lr"].meaning == "learning rate"
    assert settings["tech.bigram.buckets"].default == "2048"
    without = [key for key, setting in settings.items() if not setting.meaning and not key.startswith("tech.")]
    assert all(key.endswith("name") or key.startswith("quant.") for key in without), without


def test_a_search_finds_groups_keys_and_meanings() -> None:
    assert {s.key for g in found("decoupled decay") for s in g.settings} == {"optim.muon_wd", "optim.adam_wd"}
    assert [g.name for g in found("newton-schulz iterations")] == ["optim"]


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["optim"], "optim.matrix_lr=0.04  (at least 0)\n      learning rate of Muon"),
        (["softcap"], "model.logit_softcap=30  (above 0)\n"),
        (["tech.xsa"], "tech.xsa.last_n=4"),
    ],
)
def test_the_command_prints_them(words: list[str], shown: str) -> None:
    done = golf_command("help", "settings", *words)
    assert done.returncode == 0 and shown in done.stdout


def test_a_word_that_nothing_contains_is_said() -> None:
    done = golf_command("help", "settings", "zzz")
    assert done.returncode == 2 and "No setting has zzz" in done.stderr
