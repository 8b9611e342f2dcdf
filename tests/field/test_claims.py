"""Claims of submission.json and README.md in imported folders, each with one contradiction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.field.imports import faults, imported, log


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
    ("claims", "said"),
    [
        ({"val_bpb": 1.201}, "1.201 is one run's, the best (x/train_seed1): the mean of 3 runs is 1.202000"),
        ({"val_bpb": 1.2015}, "1.2015 is of the best 2 of 3 runs: the mean of all is 1.202000"),
        ({"val_bpb": 1.195}, "1.195 is the score before quantization: the artifact's is 1.202000"),
        ({"val_bpb": float("nan")}, "val_bpb nan is no score"),
        ({"val_loss": 2.5}, "val_loss 2.5 is in no log"),
        ({"val_bpb": 1.1502}, "1.1502 is in no log: they say 1.201000, 1.202000, 1.203000"),
        ({"val_bpb_std": 0.000816}, "0.000816 is the population's (3 in it), the sample's is 0.00100"),
        ({"val_bpb_std": 0.0044}, "0.0044 is not the logs': their sample standard deviation is 0.00100"),
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


OWN = "| seed | val_bpb |\n|--|--|\n| 7 | 1.2000 |\n"


@pytest.mark.parametrize(
    ("table", "faults_of_it"),
    [
        # Somebody else's scores stand in a column of their own.
        ("| seed | PR #1797 | val_bpb | Δ |\n|--|--|--|--|\n| 7 | 1.1950 | 1.2000 | +0.005 |\n", 0),
        ("| seed | baseline_v3 | ebt_v4 | diff |\n|--|--|--|--|\n| 7 | 1.1950 | 1.2000 | +0.005 |\n", 0),
        # Another configuration, of which no log is here, has a table of its own beside the submission's.
        (f"{OWN}\n### Fixed alpha\n\n| seed | val_bpb | artifact |\n|--|--|--|\n| 7 | 1.1770 | 15,792,392 |\n", 0),
        # A wrong score beside a right one is wrong, and so is the only table.
        ("| seed | val_bpb | sliding |\n|--|--|--|\n| 7 | 1.2000 | 1.1770 |\n", 1),
        ("| seed | val_bpb |\n|--|--|\n| 7 | 1.1770 |\n", 1),
    ],
)
def test_tables_of_a_readme_may_be_of_others(table: str, faults_of_it: int, tmp_path: Path) -> None:
    found = faults(imported(tmp_path / "x", {"train.log": log()}, readme=f"# Title\n\n{table}"))
    assert len(found) == faults_of_it, found


def test_a_size_with_the_script_of_the_folder_is_true(tmp_path: Path) -> None:
    """An export with a readable script counts that, and the logs of its runs count the wrapped one."""
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "train_gpt.py").write_text("#" * 90_000)
    sizes = {"bytes_code": 90_000, "bytes_total": 15_890_000}
    claimed = {**sizes, "seed_results": {"7": {"artifact_bytes": 15_890_000}}}
    assert faults(imported(tmp_path / "x", {"train.log": log()}, claimed)) == []
    wrong = faults(imported(tmp_path / "x", {"train.log": log()}, claimed | {"bytes_code": 80_000}))
    assert any("bytes_code is 80,000, the logs say 50,000" in fault for fault in wrong)


def test_a_sum_of_times_may_be_off_by_what_each_lost_in_rounding(tmp_path: Path) -> None:
    sliding = log(eval_ms=61, tag="final_int8_zlib_sliding")
    both = log(eval_ms=61) + "".join(line + "\n" for line in sliding.splitlines() if "sliding" in line)
    for name, said, wanted in (("right", 0.123, []), ("wrong", 0.126, ["7.eval_time_s is 0.126, the log says 0.061"])):
        found = imported(tmp_path / name, {"train.log": both}, {"seed_results": {"7": {"eval_time_s": said}}})
        assert [fault.split("seed_results.")[1] for fault in faults(found)] == wanted
