"""submission.json in many shapes."""

from __future__ import annotations

from pathlib import Path

import pytest

from golf.field.submission_json import Claims, meaning, read_claims_file


def read(tmp_path: Path, text: str | bytes) -> Claims:
    path = tmp_path / "submission.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_claims_file(path)


KEYS = {
    "val_bpb": "val_bpb mean_val_bpb val_bpb_mean mean_bpb val_bpb_exact valBpb 3_seed_mean_val_bpb val_bpb_3seed_mean",
    "val_bpb_std": "val_bpb_std std_val_bpb std_bpb val_bpb_3seed_std bpb_stdev",
    "total_bytes": "bytes_total artifact_bytes artifact_bytes_max artifact_size_bytes submission_size_bytes",
    "code_bytes": "bytes_code code_bytes",
    "model_bytes": "bytes_model_int6_zstd model_bytes",
    "steps": "steps step_stop train_steps",
    "step_ms": "step_avg_ms ms_per_step",
    "train_seconds": "wallclock_seconds train_time_seconds training_time_s",
    "eval_seconds": "eval_time_seconds eval_time_s",
    "pre_quant_bpb": "pre_quant_val_bpb",
    "sliding_bpb": "sliding_val_bpb",
    "val_loss": "val_loss mean_val_loss",
    None: "artifact_bytes_mean val_bpb_lower_bound p_value author",
}


@pytest.mark.parametrize(("what", "key"), [(what, key) for what, keys in KEYS.items() for key in keys.split()])
def test_keys(what: str | None, key: str) -> None:
    assert meaning(key) == what


@pytest.mark.parametrize(
    "text",
    [
        '{"val_bpb": 1.5, "seeds": [1, 2], "val_bpb_seeds": [1.4, 1.6]}',
        '{"val_bpb": 1.5, "seeds": {"1": 1.4, "2": {"val_bpb": 1.6}}}',
        '{"val_bpb": 1.5, "seed_results": [{"seed": 1, "val_bpb": 1.4}, {"seed": 2, "bpb": 1.6}]}',
        '{"val_bpb": 1.5, "seed_1": {"val_bpb": 1.4}, "seed_2": 1.6}',
        '{"val_bpb": 1.5, "val_bpb_seed_1": "1.4", "val_bpb_seed_2": 1.6}',
        '{"metrics": {"mean_val_bpb": 1.5, "per_seed": {"seed_1": {"val_bpb": 1.4}, "seed_2": {"all": {"bpb": 1.6}}}}}',
        '\ufeff// note\n{"val_bpb": 1.5, /* and */ "seed_results": {"1": {"val_bpb": 1.4,}, "2": {"val_bpb": 1.6}},}',
        'Here it is:\n```json\n{"val_bpb": "1.5", "seed_results": {"1": {"val_bpb": 1.4}, "2": {"val_bpb": 1.6}}}\n```',
    ],
)
def test_seeds_in_every_shape(tmp_path: Path, text: str) -> None:
    found = read(tmp_path, text)
    assert found.figures["val_bpb"].value == 1.5
    assert {seed: figures["val_bpb"].value for seed, figures in found.per_seed.items()} == {1: 1.4, 2: 1.6}


def test_what_is_about_others_is_not_taken(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        '{"comparison_baseline_bpb": 1.2244, "previous_sota": {"val_bpb": 1.1}, "stride_results": {"64": 1.2},'
        ' "limits": {"bytes_total": 16000000}, "ablations": [{"seed": 1, "val_bpb": 9}], "delta_val_bpb": -0.1}',
    )
    assert "val_bpb" not in found.figures and "total_bytes" not in found.figures
    assert not found.per_seed or 1 not in found.per_seed


def test_the_submissions_own_bytes_win_over_those_of_a_seed(tmp_path: Path) -> None:
    assert read(tmp_path, '{"artifact_bytes": 5, "bytes_total": 7}').figures["total_bytes"].value == 7


def test_unclear_keys_are_listed(tmp_path: Path) -> None:
    assert read(tmp_path, '{"val_bpb": 1.1, "val_bpb_lower_bound": 1.0, "note": "x"}').not_understood == [
        "val_bpb_lower_bound"
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"), ("   \n", "is empty"), ("[1, 2]", "holds no JSON object"), ("not json", "is not JSON"),
        ("{" * 5000, "is not JSON"), ('{"val_bpb": }', "is not JSON"), (b"\x00\x01\x02" * 100, "is not text"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_says_why(tmp_path: Path, text: str | bytes, problem: str) -> None:
    found = read(tmp_path, text)
    assert found.problem == problem and not found.figures


def test_odd_values_are_no_numbers(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        '{"val_bpb": null, "val_loss": "TBD", "bytes_total": true, "code_bytes": [1], "steps": "7,385",'
        ' "val_bpb_std": NaN}',
    )
    assert found.figures["steps"].value == 7385 and set(found.figures) == {"steps", "val_bpb_std"}
