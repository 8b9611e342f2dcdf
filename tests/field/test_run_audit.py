"""Faults that an imported run or folder shows by itself, each made on purpose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from golf.challenge import VALIDATION_BYTES
from golf.field.foreign_run import named_seed
from golf.field.import_store import import_folders
from golf.field.run_audit import implied_bytes
from tests.field.imports import faults, imported, log

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.mark.parametrize(
    ("changes", "said", "state"),
    [
        ({"model": 15_960_000}, "16,010,000 bytes in total are over the cap of 16,000,000 by 10,000", "over_bytes"),
        ({"seconds": 601.2}, "trained 601.2 s, the budget is 600 s", "over_time"),
        ({"seconds": 600.4}, "", "ok"),
        ({"eval_ms": 657_000}, "scoring took 657.0 s, the budget is 600 s", "ok"),
        ({"loss": 2.0}, "scored as 149.13 MB of text", "ok"),
        ({"loss": 2.03145, "tokens": 63_779_840}, "it is the older export of the split", "ok"),
        ({"tokens": 1_000_000}, "it is a part of the split", "ok"),
        ({"tokens": 2_000, "loss": 2.0726, "bpb": 1.2244}, "scored as 4,884 bytes of text", "ok"),
        ({"loss": 2.1}, "it flatters the score", "ok"),
        ({"total": 15_999_000}, "15,999,000 bytes in total are not 15,800,000 of the model + 50,000 of code", "ok"),
        ({"pre": 1.25, "eval_ms": 70_000}, "which no flat score can be", "ok"),
        ({"shards": 1499}, "so that no validation document is among them?", "ok"),
        ({"bpb": float("nan"), "loss": 2.0, "pre": 1.2}, "", "diverged"),
    ],
)
def test_faults_of_one_run(tmp_path: Path, changes: dict[str, Any], said: str, state: str) -> None:
    found = imported(tmp_path / "one", {"train.log": log(**changes)})
    assert found.runs[0].state == state
    assert any(said in fault for fault in faults(found)) if said else faults(found) == []


def test_longer_budgets_are_no_fault_of_the_unlimited_track(tmp_path: Path) -> None:
    found = imported(tmp_path / "track_non_record_16mb", {"train.log": log(seconds=14_400.0)})
    assert faults(found) == [] and found.runs[0].state == "ok"
    stated = log(seconds=14_400.0).replace("seed:7", "seed:7 max_wallclock_seconds:14400")
    found = imported(tmp_path / "other", {"train.log": stated})
    assert found.runs[0].state == "ok" and "trained 14,400.0 s, the budget is 600 s" in faults(found)


def test_seeds_that_are_not_what_their_names_say(tmp_path: Path) -> None:
    logs = {f"train_seed{s}.log": log(1337, 1.2 + s / 1e4, steps=13000 + s) for s in (42, 1337, 2026)}
    found = faults(imported(tmp_path / "seeds", logs))
    assert "its name says seed 42, its log seed 1337" in found and "its name says seed 2026, its log seed 1337" in found
    assert any(fault.startswith("3 runs of one variant print seed 1337") for fault in found)


def test_copies_and_unlike_data_are_seen(tmp_path: Path) -> None:
    found = faults(imported(tmp_path / "copies", {"a.log": log(1), "b.log": log(1), "c_seed2.log": log(2, 1.3)}))
    assert any("are copies of one run" in fault for fault in found)
    logs = {"train_seed1.log": log(1), "train_seed2.log": log(2, 1.3, shards=39)}
    assert "its runs trained on 39, 80 shards" in faults(imported(tmp_path / "shards", logs))


def test_a_test_time_training_that_collapsed_does_not_count(tmp_path: Path) -> None:
    text = log() + "legal_ttt_exact val_loss:2.2500 val_bpb:1.33600000\n"
    found = imported(tmp_path / "x", {"train.log": text})
    assert found.runs[0].value("val_bpb") == 1.2 and found.runs[0].value("ttt_bpb") == 1.336
    assert any("legal_ttt_exact got worse, 1.3360 after 1.2000" in fault for fault in faults(found))


def test_a_crash_after_the_score_is_a_fault_and_not_the_end_of_the_run(tmp_path: Path) -> None:
    found = imported(tmp_path / "x", {"train.log": log() + "torch.OutOfMemoryError: CUDA out of memory.\n"})
    assert found.runs[0].state == "ok" and any("crashed after its last score" in fault for fault in faults(found))


def test_cases_of_the_fixtures_are_named() -> None:
    found = {imported.name: faults(imported) for imported in import_folders([FIXTURES])}
    assert any("repeats the sliding score" in fault for fault in found["m_compatible"])
    assert any("its name says seed 11, its log seed 12" in fault for fault in found["k_source"])
    assert any("run 2 of 3 in one file, from line 10 on" in fault for fault in found["e_several"])
    assert any("scored as 0.08 MB" in fault for fault in found["h_mlx"])
    assert any("one run's, the best" in fault for fault in found["a_standard"])
    assert found["g_lora"] == found["c_ternary"] == found["b_phased"] == []


def test_bytes_of_the_whole_split() -> None:
    assert implied_bytes(2.07269931, 1.2243657, 63_779_840) == pytest.approx(155.77e6, rel=1e-4)
    assert implied_bytes(2.80428, 1.08563, 40_540_160) == pytest.approx(VALIDATION_BYTES, rel=1e-4)


SEEDS = {"train_seed42.log": 42, "a/log_s7.txt": 7, "seed-3.txt": 3, "4096_hybrid448_s1337.txt": 1337}
NO_SEEDS = ["seed_1337/x.log", "train_v1.log", "sp1024_8gpu.log", "params8.log"]


@pytest.mark.parametrize("name", [*SEEDS, *NO_SEEDS])
def test_seeds_in_names(name: str) -> None:
    assert named_seed(name) == SEEDS.get(name)
