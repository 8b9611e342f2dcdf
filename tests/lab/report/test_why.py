"""`golf why A B`: the settings in which runs, variants and lists of overrides differ."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from golf.lab.report.why import why
from golf.run.folder import create_run_folder
from golf.run.identity import variant_id
from tests.support import compose, golf_command


def lines(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert why(arguments) == 0
    return capsys.readouterr().out.splitlines()


def test_two_lists_of_overrides(capsys: pytest.CaptureFixture[str]) -> None:
    shown = lines(capsys, "scale=laptop tech=[xsa] seed=3", "scale=laptop optim.matrix_lr=0.02 data.shard_order=[1]")
    assert shown[0].startswith("two variants, ") and shown[0].endswith("they differ in")
    assert "  optim.matrix_lr: 0.014 → 0.02" in shown and "  data.shard_order: [] → [1]" in shown
    assert '  tech.xsa: {"last_n": 4} → –' in shown and not any(line.startswith("  tech:") for line in shown)
    split = shown.index("different, but no part of the variant:")
    assert shown.index("  seed: 3 → 1337") > split > shown.index("  optim.matrix_lr: 0.014 → 0.02")


def test_one_variant_under_two_names(capsys: pytest.CaptureFixture[str]) -> None:
    base = "model=9l scale=laptop"
    shown = lines(capsys, "experiment=naive_baseline scale=laptop", f"{base} optim.matrix_lr=1.4e-2")
    assert shown[0].startswith("one variant, ") and '  name: "naive_baseline" → "9l-int8"' in shown
    assert lines(capsys, base, base) == [f"one variant, {variant_id(compose(base.split()))}"]


def test_runs_variants_and_folders(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (compose(["scale=laptop", f"seed={seed}", f"optim.matrix_lr=0.0{seed}"]) for seed in (1, 2))
    one, other = (create_run_folder(cfg, []).path for cfg in (first, second))
    environment = json.loads((other / "environment.json").read_text())
    environment["packages"]["torch"] = "2.99"
    (other / "environment.json").write_text(json.dumps(environment))
    ways = [
        (str(one), str(other)),
        (str(one.parent), str(other / "config.json")),
        (variant_id(first), other.parent.name),
        (str(one), "scale=laptop seed=2 optim.matrix_lr=0.02"),
    ]
    shown = [lines(capsys, *way) for way in ways]
    for found in shown:
        assert found[1] == "  optim.matrix_lr: 0.01 → 0.02" and "  seed: 1 → 2" in found
    assert any("packages.torch" in line and '"2.99"' in line for line in shown[0])


def test_one_record_is_compared_with_what_it_builds_on(capsys: pytest.CaptureFixture[str]) -> None:
    name, parent = "2026-04-23_caseops_sparse_gate", "2026-04-19_caseops_gated_attn"
    shown = lines(capsys, name)
    assert shown == lines(capsys, *(f"experiment=records/{record} scale=record" for record in (parent, name)))
    assert "  schedule.min_lr: 0.0 → 0.1" in shown


def test_settings_of_what_is_off_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    shown = lines(capsys, "eval.ttt.freeze_blocks=1", "eval.ttt.method=lora eval.ttt.lora_rank=4 eval.ttt.epochs=2")
    assert {"  eval.ttt.lora_rank: – → 4", '  eval.ttt.method: "off" → "lora"'} < set(shown)
    assert not any("epochs" in line or "freeze_blocks" in line for line in shown)
    # Nothing else makes these two variants, and the setting is said all the same.
    assert lines(capsys, "scale=laptop eval.ttt.lora_rank=4", "scale=laptop")[1] == "  eval.ttt.lora_rank: 4 → 8"


def test_an_entry_that_one_side_lacks_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    rule = "quant.by_name={tok_emb*:{format:int8,clip_k:4}}"
    shown = lines(capsys, f"tech=[skip_gates] {rule}", "quant.by_name={tok_emb*:fp16}")
    assert shown[1:3] == [
        '  quant.by_name.tok_emb*: {"format": "int8", "clip_k": 4} → "fp16"',
        "  tech.skip_gates: {} → –",
    ]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "Name a record, or two of"),
        (["seed=1", "optim.matrix_lrr=1"], "did you mean matrix_lr?"),
        (["deadbeef", "seed=1"], "There is no variant deadbeef"),
        (["conf", "seed=1"], "is not the folder of a run or a variant"),
        (["seed='", "seed=1"], "cannot be read"),
        (["experiment=lower_lr", "scale=record"], 'Quote each side whole, as in "experiment=A scale=record"'),
        (["2026-03-17_naive_baseline"], "naive_baseline is no record that builds on another one"),
        (["experiment=lower_lr", "model=9l", "seed=2"], "Name a record, or two of"),
    ],
)
def test_sides_that_cannot_be_compared(arguments: list[str], sentence: str, runs: Path) -> None:
    done = golf_command("why", *arguments)
    assert done.returncode == 2 and done.stderr.startswith("error: ") and sentence in done.stderr


def test_overrides_longer_than_a_file_name_are_overrides() -> None:
    long = " ".join(f"tags=[tag{number:04}]" for number in range(40))
    assert golf_command("why", f"model=4l {long}", f"model=4l seed=3 {long}").returncode == 0
