"""The ledger of all finished variants."""

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from golf.lab.report.findings import judged
from golf.lab.report.ledger import ledger
from golf.lab.report.results import results_table
from golf.lab.report.study import read_study
from golf.lab.report.table import values_of
from golf.settings.config import Config, OptimConfig, RulesConfig
from tests.lab.report.runs import with_lr, write_lr_sweep, write_run, write_sweep
from tests.support import golf_command

NOISE = (-0.0005, 0.0, 0.0006)


def named(name: str, weight_decay: float) -> Config:
    return replace(Config(), name=name, optim=OptimConfig(muon_wd=weight_decay))


def negative_results(runs: Path) -> None:
    """Write a sweep of a base, one negative result and one variant that crashed."""
    base, worse, crashed = named("pr593_11l", 0.04), named("weight_decay_08", 0.08), named("xsa_all", 0.05)
    for seed, noise in enumerate(NOISE):
        write_run(runs, base, 1.1171 + noise, seed)
        write_run(runs, worse, 1.1251 + noise, seed)
    write_run(runs, crashed, 1.0, 0, state="crashed", reason="no memory")
    asked = [([f"experiment={c.name}"], c, seed) for c in (base, worse) for seed in range(3)]
    asked.append((["experiment=xsa_all"], crashed, 0))
    write_sweep(runs, "negative", asked, swept=["experiment"])


def test_a_damaged_record_of_a_sweep_hides_no_other(runs: Path) -> None:
    write_lr_sweep(runs, {0.04: [1.2286, 1.2290], 0.02: [1.2230, 1.2228]})
    for name, content in {"cut": '{"name": "cut", "ru', "odd": '{"name": "odd", "runs": [{"seed": "x"}, 5]}'}.items():
        (runs / "sweeps" / name).mkdir()
        (runs / "sweeps" / name / "sweep.json").write_text(content)
    table = ledger(RulesConfig())
    assert [row["verdict"] for row in table.rows] == ["reference", "better"]
    for name in ("cut", "odd"):
        said = f"sweeps/{name}/sweep.json is not the record of a sweep"
        assert sum(said in note for note in table.notes) == 1
        listed = golf_command("status")
        assert "lr: 4 ok" in listed.stdout and said in listed.stdout
        done = golf_command("report", name)
        assert done.returncode == 2 and said in done.stderr
    assert golf_command("report", "lr").returncode == 0


def test_negative_results_stay_with_interval_and_verdict(runs: Path) -> None:
    negative_results(runs)
    write_lr_sweep(runs, {0.04: [1.2286, 1.2290], 0.02: [1.2230, 1.2228]})
    write_run(runs, named("alone", 0.2), 1.3)
    found = {(row["sweep"], row["variant"]): row for row in ledger(RulesConfig()).rows}
    worse = found["negative", "experiment=weight_decay_08"]
    assert worse["verdict"] == "worse" and worse["reference"] == "experiment=pr593_11l"
    assert worse["interval_low_bpb"] < 0.008 < worse["interval_high_bpb"]
    assert found["negative", "experiment=xsa_all"]["verdict"] == "crashed: no memory"
    assert found["lr", "optim.matrix_lr=0.02"]["verdict"] == "better"
    assert found["", "alone"]["verdict"] == "no reference" and len(found) == 6
    # A seed that no sweep asked for is a run of its own, also of a variant of a sweep.
    write_run(runs, named("pr593_11l", 0.04), 1.2, seed=1337)
    alone = {row["mean_bpb"]: row["n"] for row in ledger(RulesConfig()).rows if not row["sweep"]}
    assert alone == {1.3: 1, 1.2: 1}


def test_the_status_of_a_result_that_will_be_made_again_is_not_ok(runs: Path) -> None:
    write_lr_sweep(runs, {0.04: [1.2286, 1.2290], 0.02: [1.2230, 1.2228]})
    cut, later, *_ = sorted(runs.glob("*/seed*/result.json"))
    cut.write_text(cut.read_text()[:200])
    later.write_text(json.dumps({**json.loads(later.read_text()), "of_a_later_version": 1}))
    listed = golf_command("status").stdout
    assert "2 ok, 2 unreadable" in listed
    assert "the same command runs it again" in " ".join(golf_command("status", "lr").stdout.split())


@pytest.mark.slow
def test_a_season_of_a_hundred_candidates_is_mostly_true(runs: Path) -> None:
    """Each in a sweep of its own against one baseline, by runs it shares: 20 are better by 5 sd, 80 are equal."""
    rng, base = np.random.default_rng(19), with_lr(0.04)
    for seed in (1, 2, 3, 4, 5):
        write_run(runs, base, 1.2 + 0.0007 * rng.standard_normal(), seed)
    true = set(rng.choice(100, 20, replace=False).tolist())
    for number in range(100):
        ours = with_lr(0.05 + number / 1000)
        for seed in (1, 2, 3, 4, 5):
            write_run(runs, ours, 1.2 + 0.0007 * (rng.standard_normal() - 5 * (number in true)), seed)
        both = (("0.04", base), (str(number), ours))
        asked = [([f"optim.matrix_lr={lr}"], cfg, seed) for lr, cfg in both for seed in range(1, 6)]
        name = f"s{number:03d}"
        write_sweep(runs, name, asked)
        os.utime(runs / "sweeps" / name / "sweep.json", (number, number))
    table = ledger(RulesConfig())
    rows = {int(row["sweep"][1:]): row for row in table.rows if row["verdict"] != "reference"}
    assert len(rows) == 100 and rows[0]["season"].endswith("(1 of 100)") and rows[99]["season"].endswith("(100 of 100)")
    each = {n for n, row in rows.items() if row["verdict"].startswith("better")}
    over = {n for n, row in rows.items() if row["season"].startswith("better")}
    # Table by table some of what is equal is called better; over the season less, and most of what is better stands.
    assert (len(each - true), len(over - true), len(over & true)) == (6, 1, 20)
    assert any("LORD++" in note for note in table.notes)
    # Each table says the same of its own candidate as the ledger does.
    for number in (7, *(each - over)):
        mine = results_table(judged(read_study([f"s{number:03d}"]), RulesConfig()))
        (said,) = [note for note in mine.notes if note.startswith("Over the season of 100 comparisons with")]
        assert said.endswith(f"{number} {rows[number]['season']}." if number in each else "none of these is better.")
    known = {row["variant_id"]: row["season"] for row in values_of(table)["rows"] if row["season"]}
    assert [place["number"] for place in known.values()] == list(range(1, 101))
    assert sum(place["verdict"] == "better" for place in known.values()) == len(over)


def test_a_table_says_so_where_its_own_season_calls_less_better(runs: Path) -> None:
    """One of eight is better at the level of the table and not at that of its place in the season."""
    rng, lrs = np.random.default_rng(5), [0.04, *(round(0.05 + n / 100, 2) for n in range(8))]
    for lr in lrs:
        for seed in range(1, 5):
            write_run(runs, with_lr(lr), 1.2 + 0.0007 * (rng.standard_normal() - 2.1 * (lr == lrs[-1])), seed)
    asked = [([f"optim.matrix_lr={lr}"], with_lr(lr), seed) for lr in lrs for seed in range(1, 5)]
    write_sweep(runs, "one", asked)
    table = results_table(judged(read_study(["one"]), RulesConfig()))
    row = next(row for row in values_of(table)["rows"] if row["variant"] == str(lrs[-1]))
    assert row["verdict"] == "better" and row["season"] == {"verdict": "not_shown", "number": 8, "of": 8}
    said = "Over the season of 8 comparisons with optim.matrix_lr=0.04 (golf ledger): "
    assert f"{said}{lrs[-1]} not shown (8 of 8)." in table.notes


def test_a_table_says_what_its_verdicts_are_over_the_season(runs: Path) -> None:
    """Two sweeps with one baseline; sweeps of the same time count by their names, and repeated ones once."""
    write_lr_sweep(runs, {0.04: [1.2286, 1.2290], 0.02: [1.2230, 1.2228]})
    assert not any("season" in note for note in results_table(judged(read_study(["lr"]), RulesConfig())).notes)
    ours = with_lr(0.03)
    for seed, bpb in enumerate((1.22861, 1.22914), start=1):
        write_run(runs, ours, bpb, seed)
    asked = [([f"optim.matrix_lr={lr}"], with_lr(lr), seed) for lr in (0.04, 0.03) for seed in (1, 2)]
    for name in ("later", "last"):
        write_sweep(runs, name, asked, created="2026-01-02T00:00:00")
    findings = judged(read_study(["later"]), RulesConfig())
    table = results_table(findings)
    said = "Over the season of 2 comparisons with optim.matrix_lr=0.04 (golf ledger): "
    assert f"{said}none of these is better." in table.notes
    first = results_table(judged(read_study(["lr"]), RulesConfig()))
    assert any(note.startswith(f"{said}0.02 ") and note.endswith(" (1 of 2).") for note in first.notes)
    row = next(row for row in values_of(table)["rows"] if row["variant"] == "0.03")
    assert row["season"] == {"verdict": "not_shown", "number": 2, "of": 2}
    # A part of the runs, chosen afterwards, is no further comparison.
    write_sweep(runs, "part", asked[::2], created="2026-01-03T00:00:00")
    again = values_of(results_table(judged(read_study(["part"]), RulesConfig())))["rows"]
    assert next(row for row in again if row["variant"] == "0.03")["season"] == row["season"]
    # Against a published score nothing is of a season.
    assert not any(
        "season" in note for note in results_table(judged(read_study(["lr"]), RulesConfig(), against=1.3)).notes
    )
