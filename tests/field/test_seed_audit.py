"""Logs of several seeds that cannot be of one script, and first losses of other training data."""

from __future__ import annotations

from pathlib import Path

import pytest

from golf.field.folder_audit import audit
from golf.field.folder_reader import read_folders
from golf.field.seed_audit import seed_remarks
from golf.settings.composition import rules_named
from tests.field.folders import SEEDS, log_of, loss_of, write
from tests.field.imports import log
from tests.support import ROOT

LOGS = ROOT.parent / "shared" / "logs"
FOLDERS = ("2026-04-05*", "2026-04-27*", "2026-04-29*", "instructive_2/pr1145*", "instructive_2/pr1885*")


def remarks(folder: Path, logs: dict[str, str]) -> list[str]:
    for name, text in logs.items():
        (folder / name).write_text(text)
    (found,) = read_folders([folder])
    return seed_remarks(found.runs)


def test_seeds_of_one_script_raise_no_remark(tmp_path: Path) -> None:
    assert remarks(tmp_path, {f"seed{seed}.log": log(seed, 1.2 + seed / 1000) for seed in (1, 2, 3)}) == []


def test_one_script_on_one_text_has_one_ratio_of_loss_to_bits_per_byte(tmp_path: Path) -> None:
    write(tmp_path)
    log_of(tmp_path, 7, loss=loss_of(SEEDS[7][0]) * 1.0005)
    (remark,) = [line for line in audit(tmp_path, None, rules_named("strict")).look_at if "one ratio" in line]
    expected = loss_of(1.0)
    assert f"{expected:.6f}" in remark and f"{expected * 1.0005:.6f} in train_seed7.log" in remark
    # another number of scored tokens is another text
    (tmp_path / "a").mkdir()
    assert remarks(tmp_path / "a", {"seed1.log": log(1), "seed2.log": log(2, loss=2.1, tokens=9)}) == []


STEPS = "".join(f"step:{i}/20000 train_loss:{7 - i / 9:.4f} train_time:{i}ms step_avg:1.00ms\n" for i in range(1, 7))
PROGRESS = "".join(f"  ttt_chunk [{i}/9] bpb={1.2 + i / 999:.6f} time={i}s\n" for i in range(1, 7))


@pytest.mark.parametrize("course", [STEPS, PROGRESS])
def test_two_seeds_do_not_print_the_same_progress(tmp_path: Path, course: str) -> None:
    logs = {
        f"seed{seed}.log": log(seed, 1.2 + seed / 1000).replace("step:13000", course + "step:13000", 1)
        for seed in (1, 2)
    }
    (remark,) = remarks(tmp_path, logs)
    assert "print the same 6 numbers" in remark or "print the same 5 numbers" in remark
    other = logs["seed2.log"].replace("6.8889", "6.8888").replace("1.201001", "1.201002")
    assert remarks(tmp_path, {"seed2.log": other}) == []
    assert remarks(tmp_path, {"seed2.log": logs["seed2.log"].replace("seed:2", "seed:1")}) == []


def test_the_first_loss_of_a_known_model_tells_the_training_data(tmp_path: Path) -> None:
    text = "model_params:35945671\n" + log(42)
    for first, count in ((9.0087, 0), (9.0073, 1)):
        line = f"1/20000 train_loss: {first} train_time: 0.0m tok/s: 8343274\n"
        found = remarks(tmp_path, {"train.log": text.replace("step:13000", line + "step:13000", 1)})
        assert len(found) == count and all("9.0073" in remark and "9.0087" in remark for remark in found)
    # the first printed step of another log is no first step
    later = text.replace("step:13000", "500/20000 train_loss: 3.3363 train_time: 0.9m tok/s: 77\nstep:13000", 1)
    assert remarks(tmp_path, {"train.log": later}) == []


@pytest.mark.parametrize("name", FOLDERS)
def test_public_seeds_raise_no_remark(name: str) -> None:
    if not (LOGS / "instructive_2").is_dir():
        pytest.skip("needs ../shared/logs beside this checkout")
    (folder,) = LOGS.glob(name)
    assert seed_remarks([run for found in read_folders([folder]) for run in found.runs]) == []
