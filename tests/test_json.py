"""JSON of the commands: stdout is one JSON value, a verdict is one word, and exit statuses say what was found."""

from __future__ import annotations

import json
import math
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from golf.commands import parsing
from golf.commands.cli import COMMANDS
from golf.lab.corpora.own_text import OwnDataset
from golf.tables import table_of
from golf.words import answer, told_on_stderr
from tests.lab.report.runs import write_lr_sweep
from tests.support import ROOT, Done, golf_command, golf_main, tiny_overrides

SCORES = {0.04: [1.2286, 1.2279, 1.2291], 0.02: [1.2230, 1.2238, 1.2225], 0.025: [1.2250, 1.2243, 1.2257]}


def told(done: Done) -> Any:
    """Return the value on stdout, which has to be JSON from its first letter to its last, without a colour."""
    assert "\x1b" not in done.stdout and "NaN" not in done.stdout, done.stdout
    return json.loads(done.stdout)


def test_every_value_becomes_json() -> None:
    @dataclass
    class Inner:
        path: Path
        numbers: tuple[float, ...]

    value = {"a": Inner(Path("x"), (1.5, math.nan, math.inf)), 3: {"b"}, "c": [True, None, "ü"]}
    assert json.loads(answer(value)) == {
        "a": {"path": "x", "numbers": [1.5, None, None]},
        "3": ["b"],
        "c": [True, None, "ü"],
    }
    for empty in ((n for n in range(3)), object()):
        with pytest.raises(TypeError, match="no value of JSON"):
            answer({"gaps": empty})


def test_report_has_a_word_for_each_verdict_and_a_status_for_the_decision(runs: Path) -> None:
    write_lr_sweep(runs, SCORES)
    done = golf_command("report", "lr", "--rules", "strict", "--json", "--exit")
    rows = {row["variant"]: row for row in told(done)["rows"]}
    assert rows["0.04"]["verdict"] == "reference" and rows["0.025"]["verdict"] == "margin_not_shown"
    assert rows["0.02"]["seeds"] == [1, 2, 3] and rows["0.02"]["states"] == {"ok": 3}
    assert all(Path(run["folder"], "result.json").is_file() for row in rows.values() for run in row["runs"])
    assert all(isinstance(row["p"], float) for row in rows.values() if row["verdict"] != "reference")
    statuses = {"0.04": 0, "0.02": 10}  # reference → status
    for reference, status in statuses.items():
        assert golf_command("report", "lr", "--reference", reference, "--exit").returncode == status


def test_one_seed_is_undecided_with_its_reason(runs: Path) -> None:
    write_lr_sweep(runs, {0.04: [1.2286], 0.02: [1.2230]})
    done = golf_command("report", "lr", "--json", "--exit")
    row = next(row for row in told(done)["rows"] if row["verdict"] != "reference")
    assert done.returncode == 11 and row["verdict"] == "no_verdict" and "one seed" in row["verdict_reason"]


def test_ledger_rows_can_be_joined_with_those_of_a_report(runs: Path) -> None:
    write_lr_sweep(runs, SCORES)
    ledger, report = (told(golf_command(*words, "--json"))["rows"] for words in (("ledger",), ("report", "lr")))
    assert {row["variant_id"] for row in ledger} == {row["variant_id"] for row in report} and len(ledger) == 3
    by_id = {row["variant_id"]: row for row in report}
    assert all(row["verdict"] == by_id[row["variant_id"]]["verdict"] for row in ledger)


def test_status_says_what_runs_and_power_how_many_seeds(runs: Path) -> None:
    write_lr_sweep(runs, SCORES)
    assert [one["states"] for one in told(golf_command("status", "--json"))] == [{"ok": 9}]
    for words in (("status", "lr", "--json"), ("status", "lr", "--json", "--watch")):
        lr = told(golf_command(*words))
        assert lr["at_work"] is False and len(lr["runs"]) == 9
        assert {run["seed"] for run in lr["runs"]} == {1, 2, 3} and Path(lr["runs"][0]["folder"]).is_dir()
    power = told(golf_command("power", "--sigma", "0.001", "--difference", "0.002", "--json"))
    assert [row["seeds"] for row in power["rows"]][:3] == [2, 3, 4]


def test_a_dry_run_and_a_run_tell_the_same_variant(tiny: OwnDataset, runs: Path) -> None:
    swept = ["-m", *tiny_overrides(tiny), "optim.matrix_lr=0.02,0.03", "seed=1,2", "--json"]
    before = told(golf_main(*swept, "--dry-run"))
    assert not runs.exists() and before["dry_run"] and before["forecast"]["runs"] == 4
    assert [run["finished"] for run in before["runs"]] == [False] * 4
    single = told(golf_main(*tiny_overrides(tiny), "optim.matrix_lr=0.02", "seed=1", "--json"))
    first = before["runs"][0]
    assert single["result"]["variant_id"] == first["variant_id"] and single["result"]["state"] == "ok"
    after = told(golf_main(*swept, "--dry-run"))
    assert [run["finished"] for run in after["runs"]] == [True, False, False, False]
    assert after["runs"][0]["folder"] == single["folder"] and after["forecast"]["runs"] == 3


def test_a_forecast_of_rounds_is_of_the_runs_that_are_left(tiny: OwnDataset, runs: Path) -> None:
    rounds = ["sweep.until=decided", "sweep.max_seeds=3", "seed=1,2,3"]
    swept = ["-m", *tiny_overrides(tiny), *rounds, "optim.matrix_lr=0.02,0.03", "--json", "--dry-run"]
    assert told(golf_main(*swept))["forecast"]["runs"] == 6
    assert golf_main(*tiny_overrides(tiny), "optim.matrix_lr=0.02", "seed=1").returncode == 0
    left = told(golf_main(*swept))
    assert left["forecast"]["runs"] == 5 == sum(not run["finished"] for run in left["runs"])


def test_settings_are_told_to_programs() -> None:
    (setting,) = told(golf_command("help", "settings", "qk_gain", "--json"))["settings"]
    assert setting["key"] == "model.qk_gain_init" and float(setting["default"]) == 1.5 and setting["meaning"]


def test_a_sweep_ends_with_its_report(tiny: OwnDataset, runs: Path) -> None:
    swept = ["-m", *tiny_overrides(tiny), "optim.matrix_lr=0.02,0.03", "seed=1,2", "--json"]
    done = golf_main(*swept)
    report = told(done)
    assert done.returncode == 0 and [row["n"] for row in report["rows"]] == [2, 2] and not report["dry_run"]
    assert told(golf_command("report", report["sweep"], "--json"))["rows"] == report["rows"]


def test_a_mistake_is_one_sentence_beside_json(tiny: OwnDataset, runs: Path) -> None:
    done = golf_main(*tiny_overrides(tiny), "model.num_heads=3", "--json")
    assert done.returncode == 2 and "does not divide" in told(done)["errors"][0] and "error: " in done.stderr


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"bench", "train"}))
def test_the_page_names_every_command_with_json(command: str) -> None:
    options = table_of(parsing.__file__, "options.yaml").get(command, {})
    page = (ROOT / "docs/json.md").read_text()
    assert ("--json" in options) == (f"`{command}" in page)


def test_doctor_why_and_submit_answer_a_program(tiny: OwnDataset, runs: Path) -> None:
    doctor = told(golf_command("doctor", "--json"))
    assert doctor["next"] and {check["state"] for check in doctor["checks"]} <= {"ok", "note", "problem"}
    base = " ".join(tiny_overrides(tiny))
    why = told(golf_command("why", base, f"{base} optim.matrix_lr=0.5 seed=3", "--json"))
    assert why["differs"]["optim.matrix_lr"][1] == 0.5 and why["besides"]["seed"][1] == 3
    assert len(set(why["variant_ids"])) == 2
    submitted = told(golf_command("submit", "cluster=local", *tiny_overrides(tiny), "seed=1,2", "--dry-run", "--json"))
    assert submitted["dry_run"] and [run["seed"] for run in submitted["runs"]] == [1, 2]


def test_what_children_print_is_no_part_of_an_answer(capfd: pytest.CaptureFixture[str]) -> None:
    with told_on_stderr():
        subprocess.run(["echo", "a rank"], check=True)
        print("a step")
    print("{}")
    out, err = capfd.readouterr()
    assert out == "{}\n" and "a rank" in err and "a step" in err
