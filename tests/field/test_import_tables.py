"""Lists of imported runs: a part of them, their order, the worst faults first, kinds counted, names that stay apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from golf.commands import import_command
from golf.errors import GolfError
from golf.field.import_store import import_folders, record
from golf.field.import_tables import KINDS, OTHER, counts, fault_lines, kind_of, table
from golf.field.imported_entries import Entry, chosen, entries_of, ordered
from tests.field.imports import log

NAME = "2026-04-27_SP8192_LQER_SparseGate_BOSSmearFix_9HpStack_"


@pytest.fixture
def entries(tmp_path: Path) -> list[Entry]:
    """Three submissions: one clean, one over the cap, one with two seeds that print one number."""
    logs = {
        "clean": {"train.log": log(7, 1.21)},
        f"{NAME}a": {"train_seed7.log": log(7, 1.1, model=15_990_000)},
        f"{NAME}b": {"train_seed1.log": log(1, 1.3, steps=12_000), "train_seed2.log": log(1, 1.31)},
    }
    for folder, files in logs.items():
        (tmp_path / folder).mkdir()
        for name, text in files.items():
            (tmp_path / folder / name).write_text(text)
    return entries_of([record(found) for found in import_folders([tmp_path / folder for folder in logs])])


def names(entries: list[Entry]) -> list[str]:
    return [entry.row.name.rpartition("/")[2] for entry in entries]


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        (["state=over"], ["train_seed7"]),
        (["val_bpb<1.25"], ["train", "train_seed7"]),
        (["bpb >= 1.3", "steps=12000"], ["train_seed1"]),
        (["fault=OVER THE CAP"], ["train_seed7"]),
        (["name=_b/"], ["train_seed1", "train_seed2"]),
        (["print seed 1"], ["train_seed1", "train_seed2"]),
        (["text=FineWeb"], ["train", "train_seed7", "train_seed1", "train_seed2"]),
        (["bytes>16,000,000"], ["train_seed7"]),
        (["ttt<9"], []),
    ],
)
def test_a_part_is_chosen(entries: list[Entry], conditions: list[str], expected: list[str]) -> None:
    assert names(chosen(entries, conditions)) == expected


@pytest.mark.parametrize(
    ("condition", "says"),
    [("foo<1", "have no foo"), ("bpb<x", "bpb is a number, x is none"), ("state<ok", "write state=ok")],
)
def test_a_condition_that_cannot_be_is_one_sentence(condition: str, says: str) -> None:
    with pytest.raises(GolfError, match=says):
        chosen([], [condition])


def test_runs_are_sorted_and_unknown_values_come_last(entries: list[Entry]) -> None:
    assert names(ordered(entries, "val_bpb")) == ["train_seed7", "train", "train_seed1", "train_seed2"]
    assert names(ordered(entries, "-steps"))[-1] == "train_seed1"
    assert names(ordered(entries, "ttt")) == names(entries)
    assert names(ordered(entries, "-fault"))[0] in ("train_seed1", "train_seed2", "train_seed7")


def test_the_worst_comes_first_and_kinds_are_counted(entries: list[Entry]) -> None:
    lines = fault_lines(entries)
    assert "over the cap" in lines[0] and len([line for line in lines if "16,040,000" in line]) == 1
    assert counts(entries) == "3 faults: 1 over the cap, 2 seeds"
    assert counts(entries[:1]) == "" and fault_lines(entries[:1]) == []
    assert fault_lines(list(reversed(entries)))[0] == lines[0]


def test_one_sentence_about_several_seeds_is_one_line(tmp_path: Path) -> None:
    tag = "final_int8_zlib_roundtrip val_loss:1.9 val_bpb:1.0999\n"
    for seed in (1, 2, 3):
        (tmp_path / f"train_seed{seed}.log").write_text("eval_mode:sliding_window stride:64\n" + log(seed) + tag)
    (found,) = import_folders([tmp_path])
    (line,) = (x for x in fault_lines(entries_of([record(found)])) if "is a sliding-window score" in x)
    assert all(f"train_seed{seed}" in line for seed in (1, 2, 3))


SENTENCES = {
    "16,010,000 bytes in total are over the cap of 16,000,000 by 10,000": "over the cap",
    "submission.json: bytes_total 16,200,000 is over the cap of 16,000,000 by 200,000": "over the cap",
    "trained 612.3 s, the budget is 600 s": "over the time",
    "submission.json: val_bpb 1.2 is in no log: they say 1.3": "claims",
    "README.md:4 gives seed 42 a score of 1.2, its log does not": "README",
    "its name says seed 42, its log seed 7": "seeds",
    "final_x is 0.1631 below the score before quantization, which no flat score can be": "kind of score",
    "never seen before": OTHER,
}


@pytest.mark.parametrize("sentence", SENTENCES)
def test_kinds_of_faults(sentence: str) -> None:
    assert kind_of(sentence) == SENTENCES[sentence] and SENTENCES[sentence] in KINDS


def test_names_stay_apart(entries: list[Entry]) -> None:
    text = table(entries, 80, by_submission=False)
    lines = [line.split()[0] for line in text.splitlines()[2:]]
    assert len(set(lines)) == len(entries) and any("…" in name for name in lines)
    headings = [line for line in table(entries, 80).splitlines() if not line.startswith(" ")]
    assert headings[1:] == ["clean", f"{NAME}a", f"{NAME}b (1 fault)"]


def test_names_that_would_be_cut_alike_are_whole(entries: list[Entry]) -> None:
    text = table(entries, 10, by_submission=False)
    assert len({line.split()[0] for line in text.splitlines()[2:]}) == len(entries)


def test_the_command_shows_a_part(tmp_path: Path, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed, bpb in ((1, 1.2), (2, 1.1)):
        (tmp_path / f"train_seed{seed}.log").write_text(log(seed, bpb))
    assert import_command.main([str(tmp_path), "--filter", "bpb<1.15"]) == 0
    shown = capsys.readouterr().out
    assert "1 imported run\n" in shown and "train_seed2" in shown and "train_seed1 " not in shown
    assert import_command.main(["--sort", "val_bpb", "--csv"]) == 0
    assert [line.split(",")[2] for line in capsys.readouterr().out.splitlines()] == ["seed", "2", "1"]
    with pytest.raises(GolfError, match="have no foo"):
        import_command.main([str(tmp_path / "nowhere"), "--filter", "foo=1"])
