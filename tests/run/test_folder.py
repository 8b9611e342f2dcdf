"""The run folder and the result file."""

import json
from pathlib import Path

import pytest

from golf.bits import Score
from golf.errors import GolfError
from golf.run.folder import create_run_folder
from golf.run.identity import variant_id
from golf.run.result import Result, read_result
from golf.settings.config import Config, from_dict, to_dict


def test_a_run_gets_its_own_folder_every_time(runs: Path) -> None:
    cfg = Config(name="try")
    first, second = (create_run_folder(cfg, ["golf"]) for _ in range(2))
    assert first.path == runs / f"try-{variant_id(cfg)}" / "seed1337"
    assert second.path.name == "seed1337.2"
    assert first.read_config() == cfg
    record = json.loads((first.path / "environment.json").read_text())
    assert record["packages"]["torch"] and record["command"] == ["golf"] and record["cpu_cores"] >= 1


def test_a_damaged_configuration_is_one_sentence(runs: Path) -> None:
    folder = create_run_folder(Config(), ["golf"])
    for text in ("", "[1]", '{"seed": '):
        folder.config.write_text(text)
        with pytest.raises(GolfError, match=r"config\.json cannot be read .*: copy it again, or repeat the run"):
            folder.read_config()


def test_results_are_read_back(runs: Path) -> None:
    folder = create_run_folder(Config(), [])
    result = Result("x", "abc", 1, state="ok", pre_quant=Score(1.0, 2.0, 3, 4, 0.5))
    folder.write_result(result)
    assert read_result(folder.result) == result
    folder.result.write_text("{}")
    with pytest.raises(GolfError, match="not a result"):
        read_result(folder.result)


@pytest.mark.parametrize("late", ["ok", "interrupted", "crashed"])
@pytest.mark.parametrize("said", ["crashed", "interrupted"])
def test_a_rank_that_survives_its_launcher_changes_nothing(said: str, late: str, runs: Path) -> None:
    folder = create_run_folder(Config(), [])
    folder.write_failure(Result("x", "abc", 1, state=said))
    assert not folder.write_result(Result("x", "abc", 1, state=late, steps=9))
    assert read_result(folder.result) == Result("x", "abc", 1, state=said)


def test_the_launcher_has_the_last_word(runs: Path) -> None:
    """A rank that torchrun stopped says `interrupted`; the launcher knows that another rank crashed."""
    folder = create_run_folder(Config(), [])
    assert folder.write_result(Result("x", "abc", 1, state="interrupted"))
    folder.write_failure(Result("x", "abc", 1, state="crashed"))
    assert read_result(folder.result).state == "crashed"


def test_a_rank_of_an_earlier_start_writes_no_result_into_a_resumed_run(runs: Path) -> None:
    """The launcher died, the job resumes in the folder and has removed the old result: the old rank is still there."""
    folder = create_run_folder(Config(), [])
    folder.begin()
    survivor = folder.start_id()
    folder.write_failure(Result("x", "abc", 1, state="crashed"))
    folder.result.unlink()
    folder.begin()
    assert not folder.write_result(Result("x", "abc", 1, state="interrupted"), survivor)
    assert folder.write_result(Result("x", "abc", 1, state="ok"), folder.start_id())
    assert read_result(folder.result).state == "ok"


def test_an_unwritable_place_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GOLF_RUNS", str(tmp_path / "file"))
    with pytest.raises(GolfError, match="cannot be written"):
        create_run_folder(Config(), [])


def test_configurations_survive_json_and_refuse_what_they_do_not_know() -> None:
    cfg = Config(seed=3)
    assert from_dict(Config, json.loads(json.dumps(to_dict(cfg)))) == cfg
    with pytest.raises(GolfError, match="does not know speed"):
        from_dict(Config, {"speed": 1})
    with pytest.raises(GolfError, match=r"ModelConfig\.num_layers is 'x'"):
        from_dict(Config, {"model": {"num_layers": "x"}})
