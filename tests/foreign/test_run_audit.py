"""Contradictions that have to be named, each made on purpose; and what is no contradiction."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from golf.challenge import VALIDATION_BYTES
from golf.foreign.folder_reader import ForeignFolder
from golf.foreign.foreign_run import named_seed
from golf.foreign.import_store import import_folders
from golf.foreign.run_audit import implied_bytes

FIXTURES = Path(__file__).parent / "fixtures"
TOKENS = 62_021_632


def log(seed: int = 7, bpb: float = 1.2, **changes: Any) -> str:
    """A log of the oldest dialect; loss and bits per byte belong together unless `loss` says otherwise."""
    at = {"loss": bpb * math.log(2) * VALIDATION_BYTES / TOKENS, "tokens": TOKENS, "pre": bpb - 0.007}
    at |= {"seconds": 600.0, "steps": 13_000, "shards": 80, "model": 15_800_000, "code": 50_000}
    at |= {"tag": "final_int8_zlib_roundtrip"} | changes
    time = f"train_time:{at['seconds'] * 1000:.0f}ms"
    total = at.get("total", at["model"] + at["code"])
    return f"""train_loader:dataset:fineweb10B_sp1024 train_shards:{at["shards"]}
val_loader:shards pattern=x tokens:{at["tokens"]}
seed:{seed}
step:{at["steps"]}/20000 val_loss:2.0000 val_bpb:{at["pre"]:.4f} {time} step_avg:46.15ms
stopping_early: wallclock_cap {time} step:{at["steps"]}/20000
Serialized model: 67224983 bytes
Code size: {at["code"]} bytes
Serialized model int8+zlib: {at["model"]} bytes
Total submission size int8+zlib: {total} bytes
{at["tag"]} val_loss:{at["loss"]:.4f} val_bpb:{bpb:.4f} eval_time:{at.get("eval_ms", 1400)}ms
{at["tag"]}_exact val_loss:{at["loss"]:.8f} val_bpb:{bpb:.8f}
"""


def imported(
    folder: Path, logs: dict[str, str], claims: dict[str, Any] | None = None, readme: str = ""
) -> ForeignFolder:
    folder.mkdir(exist_ok=True)
    for name, text in logs.items():
        (folder / name).write_text(text)
    if claims is not None:
        (folder / "submission.json").write_text(json.dumps(claims))
    if readme:
        (folder / "README.md").write_text(readme)
    (found,) = import_folders([folder])
    return found


def faults(found: ForeignFolder) -> list[str]:
    return [*found.faults, *(fault for run in found.runs for fault in run.faults)]


def test_a_clean_submission_has_no_fault(tmp_path: Path) -> None:
    logs = {f"train_seed{s}.log": log(s, 1.2 + s / 1000, model=15_800_000 + s) for s in (1, 2, 3)}
    claims = {
        "val_bpb": 1.202,
        "val_bpb_std": 0.001,
        "bytes_total": 15_850_003,
        "bytes_code": 50_000,
        "seeds": [1, 2, 3],
    }
    claims |= {"seed_results": {str(s): {"val_bpb": 1.2 + s / 1000, "steps": 13000} for s in (1, 2, 3)}}
    readme = (
        "**val_bpb: 1.2020**\n\n| seed | steps | val_bpb | gain |\n|--|--|--|--|\n| 1 | 13,000 | 1.2010 | 0.0070 |\n"
    )
    found = imported(tmp_path / "clean", logs, claims, readme)
    assert faults(found) == [] and {run.state for run in found.runs} == {"ok"}


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
        ({"loss": 2.1}, "it flatters the score", "ok"),
        ({"total": 15_999_000}, "15,999,000 bytes in total are not 15,800,000 of the model + 50,000 of code", "ok"),
        ({"pre": 1.25, "eval_ms": 70_000}, "which no flat score can be", "ok"),
        ({"shards": 1499}, "validation documents in the training data", "ok"),
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


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"val_bpb": 1.201}, "1.201 is one run's, the best (x/train_seed1): the mean of 3 runs is 1.202000"),
        ({"val_bpb": 1.1502}, "1.1502 is in no log: they say 1.201000, 1.202000, 1.203000"),
        ({"val_bpb_std": 0.000816}, "0.000816 is the population's (3 in it), the sample's is 0.00100"),
        ({"bytes_total": 15_840_000}, "15,840,000 is 10,000 below the largest run's 15,850,000"),
        ({"bytes_total": 1_461}, "1,461 is not a submission's size"),
        ({"bytes_code": 40_000}, "bytes_code is 40,000, the logs say 50,000"),
        ({"seed_results": {"1": {"val_bpb": 1.2009}}}, "seed_results.1.val_bpb is 1.2009, the log says 1.201000"),
        ({"seed_results": {"1": {"steps": 13_100}}}, "seed_results.1.steps is 13,100, the log says 13,000"),
        ({"seed_results": {"9": {"val_bpb": 1.2}}}, "gives seed 9, there is no log of seed 9"),
    ],
)  # fmt: skip
def test_claims_that_do_not_match(tmp_path: Path, claims: dict[str, Any], said: str) -> None:
    found = faults(imported(tmp_path / "x", {f"train_seed{s}.log": log(s, 1.2 + s / 1000) for s in (1, 2, 3)}, claims))
    assert len(found) == 1 and said in found[0], found


def test_a_readme_that_is_of_another_run(tmp_path: Path) -> None:
    readme = (
        "# Title\n\nval_bpb: **1.1502**\n\n| Seed | val_bpb | Artifact bytes |\n|--|--|--|\n| 7 | 1.2 | 15,977,386 |\n"
    )
    found = faults(imported(tmp_path / "x", {"train.log": log()}, readme=readme))
    assert found == [
        "README.md:3 says val_bpb 1.1502, which no log has",
        "README.md:7 gives seed 7 a size of 15,977,386, its log does not",
    ]


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
