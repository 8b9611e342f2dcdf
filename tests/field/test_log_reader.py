"""Every dialect of the public logs, in small logs of our own: each number where it belongs, and its source."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from golf.field.folder_reader import ForeignFolder
from golf.field.foreign_run import ForeignRun
from golf.field.import_store import import_folders

FIXTURES = Path(__file__).parent / "fixtures"
with (FIXTURES / "expected.csv").open(newline="") as file:
    EXPECTED = {row.pop("run"): row for row in csv.DictReader(file)}  # an empty cell is what the log does not tell
STATES = {
    "e_several/train#1": "crashed",
    "f_crashed/train_seed5": "crashed",
    "f_crashed/train_seed6": "diverged",
    "f_crashed/train_seed8": "unfinished",
    "n_over/train_seed3": "over_bytes",
}


@pytest.fixture(scope="module")
def imported() -> dict[str, ForeignFolder]:
    return {found.name: found for found in import_folders([FIXTURES])}


@pytest.fixture(scope="module")
def runs(imported: dict[str, ForeignFolder]) -> dict[str, ForeignRun]:
    return {run.name: run for found in imported.values() for run in found.runs if ".json" not in run.name}


def test_every_run_is_found(runs: dict[str, ForeignRun]) -> None:
    assert sorted(runs) == sorted(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_figures_of_a_run(runs: dict[str, ForeignRun], name: str) -> None:
    found = {key: runs[name].value(key) for key in EXPECTED[name]}
    assert found == {key: float(cell) if cell else None for key, cell in EXPECTED[name].items()}
    assert runs[name].state == STATES.get(name, "ok")
    assert bool(runs[name].reason) == (name in STATES)


@pytest.mark.parametrize("name", EXPECTED)
def test_every_figure_stands_in_the_line_that_it_names(runs: dict[str, ForeignRun], name: str) -> None:
    folder = FIXTURES / name.partition("/")[0]
    for key, figure in runs[name].figures.items():
        source = re.fullmatch(r"([\w./-]+):(\d+)(?: \(.*\))?", figure.source)
        if source is None:
            assert key in ("step_ms", "eval_seconds"), f"{key}: {figure.source}"
            continue
        text = (folder / source[1]).read_text().splitlines()[int(source[2]) - 1]
        in_seconds = "seconds" in key and key != "max_wallclock_seconds"
        written = [v for n in re.findall(r"\d[\d,]*\.?\d*", text) if (v := float(n.replace(",", ""))) is not None]
        assert any(figure.value in (v, v / 1000 if in_seconds else v) for v in written), f"{key}: {figure} in {text}"


def test_seeds_of_one_variant_are_gathered(runs: dict[str, ForeignRun]) -> None:
    assert runs["a_standard/train"].variant == runs["a_standard/train_seed7"].variant
    assert len({runs[name].variant for name in ("e_several/train", "e_several/train#1", "e_several/train#2")}) == 3
    assert runs["c_ternary/log_10mins_seed-7"].variant != runs["d_fitness/log_evolution"].variant


def test_how_a_score_was_taken_is_told_in_the_words_of_own_runs(runs: dict[str, ForeignRun]) -> None:
    assert runs["a_standard/train"].texts["how"] == "standard"
    assert runs["e_several/train"].texts["how"] == "sliding window, stride 64"
    assert runs["c_ternary/log_10mins_seed-7"].texts["how"] == "sliding window, stride 16"
    assert "legal_ttt" in runs["m_compatible/train_seed42"].texts["how"]


def test_claims_are_runs_where_no_log_is(imported: dict[str, ForeignFolder]) -> None:
    claimed = {run.count("seed"): run for run in imported["l_claims_only"].runs}
    assert sorted(s for s in claimed if s is not None) == [42, 1337]
    assert claimed[1337].value("total_bytes") == 15977386 and claimed[42].value("eval_seconds") == 408.0
    assert claimed[42].figures["val_bpb"].source == "submission.json: seed_results.42.val_bpb"
    assert any("there is no log" in fault for fault in claimed[42].faults)
    assert imported["l_claims_only"].faults == ["submission.json is not strict JSON"]


def test_a_script_echoed_into_the_log_gives_no_numbers(imported: dict[str, ForeignFolder]) -> None:
    assert imported["k_source"].source_lines >= 8
    assert [run.name for run in imported["k_source"].runs] == ["k_source/train_seed11"]
    assert imported["k_source"].runs[0].texts["machine"] == "2× NVIDIA H100 80GB HBM3"


def test_lines_that_say_nothing_known_are_counted(imported: dict[str, ForeignFolder]) -> None:
    assert imported["i_freeform"].not_understood == 1
    assert imported["i_freeform"].examples == ["train.log:1: Building PyTorch model..."]
