"""Audits of real public submissions and of folders with one thing wrong."""

import json
from pathlib import Path

import pytest

from golf.composition import rules_named
from golf.submission.audit import Audit, audit
from scripts import audit_submission
from tests.support import ROOT

LOGS = ROOT.parent / "shared" / "logs"
KNOWN_FAULTS = {  # records that are not listed have none
    "2026-03-17_NaiveBaseline": ["older export"],
    "2026-03-18_FP16Embed_WD3600": ["one run's, the best", "below the largest run's 15,897,173"],
    "2026-03-18_LongContextSeq2048": ["one run's, the best"],
    "2026-03-18_LowerLR": [],
    "2026-03-19_SlidingWindow_FP16Emb_10L_MuonWD_OvertoneInit": [
        *(
            "is a sliding-window score",
            "seed_results.42.steps",
            "seed_results.7.steps",
            "below the largest",
            "code_bytes",
        ),
    ],
    "2026-03-20_Int6_MLP3x_SmearGate_BigramHash_MuonWD_SWA": ["is a sliding-window score", "below the largest"],
    "2026-03-23_LeakyReLU_LegalTTT_ParallelMuon": ["repeats the sliding score"],
    "2026-04-05_SP8192_GPTQ-Embeddings_SDClip_Loop45x2": ["below the largest"],
    "2026-04-27_SP8192_LQER_SparseGate_BOSSmearFix_9HpStack_1.0611": ["population's"],
}
STRICT = rules_named("strict")
LINES = """logs/x.txt
val_loader:shards pattern=data/fineweb_val_*.bin tokens:62021632
seed:{seed}
step:100/100 val_loss:2.0600 val_bpb:1.2201 train_time:599000ms step_avg:43.00ms
stopping_early: wallclock_cap train_time:600010ms step:13780/20000
Serialized model: 67224983 bytes
Code size: {code} bytes
Serialized model int8+zlib: 15800000 bytes (payload:17178912 raw_torch:17224025 payload_ratio:3.91x)
Total submission size int8+zlib: {total} bytes
final_int8_zlib_roundtrip_exact val_loss:{loss:.8f} val_bpb:{bpb:.8f}
"""


def write(folder: Path, **changes: object) -> Path:
    """A submission with nothing wrong but `changes`."""
    script = str(changes.get("script", "import torch\n" * 100))
    (folder / "train_gpt.py").write_text(script)
    (folder / "README.md").write_text("A submission of three seeds.")
    code, bpbs = len(script), (1.2261, 1.2275, 1.2289)
    for seed, bpb in zip((1, 2, 3), bpbs, strict=True):
        loss = bpb * 0.6931471805599453 * 151_080_000 / 62_021_632
        text = LINES.format(seed=seed, code=code, total=15_800_000 + code, loss=loss, bpb=bpb)
        (folder / f"train_seed{seed}.log").write_text(text)
    values = {
        "author": "A",
        "github_id": "a",
        "name": "N",
        "blurb": "B",
        "date": "2026-04-01",
        "val_loss": 2.0727,
        "val_bpb": 1.2275,
        "bytes_total": 15_800_000 + code,
        "bytes_code": code,
        "seeds": [1, 2, 3],
        "track": "10min_16mb",
        **changes.get("json", {}),  # type: ignore[dict-item]
    }
    (folder / "submission.json").write_text(json.dumps(values))
    return folder


def found(folder: Path, reference: float | None = None) -> Audit:
    return audit(folder, reference, STRICT)


def test_a_folder_with_nothing_wrong(tmp_path: Path) -> None:
    result = found(write(tmp_path), 1.30)
    assert result.faults == [] and result.look_at == []
    assert any("3 seeds" in line for line in result.in_order) and any("better" in line for line in result.in_order)
    assert any("nothing was run" in line for line in result.unchecked)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"json": {"bytes_code": 999}}, "bytes_code is 999, train_gpt.py has 1,300"),
        ({"json": {"val_bpb": 1.2261}}, "is one run's, the best"),
        ({"json": {"bytes_total": 15_700_000}}, "below the largest run's"),
        ({"script": "import helper\n" + "x = 1\n" * 200}, "imports helper from the folder"),
        ({"script": "x = '" + "a" * 300_000 + "'\n"}, "are 100,007 bytes over 16,000,000"),
        ({"script": ""}, "train_gpt.py is empty"),
    ],
)
def test_one_thing_wrong(tmp_path: Path, changes: dict, fault: str) -> None:
    (tmp_path / "helper.py").write_text("")
    assert any(fault in line for line in found(write(tmp_path, **changes)).faults)


def test_what_is_missing_and_what_is_suspicious(tmp_path: Path) -> None:
    write(tmp_path, script="import requests, brotli\ndef eval_val():\n    return open('fineweb_train_0.bin')\n")
    (tmp_path / "README.md").unlink()
    result = found(tmp_path, 1.2276)
    assert result.faults == ["there is no README.md"]
    looked = "\n".join(result.look_at)
    for part in ("imports requests", "imports brotli, requests, which no", "not distinguishable"):
        assert part in looked


def test_faults_of_public_submissions_are_found_and_no_others() -> None:
    if not LOGS.is_dir():
        pytest.skip("needs ../shared/logs, which is not beside this checkout")
    faults = {f.name: found(f).faults for f in sorted(LOGS.iterdir()) if f.is_dir()}
    for name, expected in KNOWN_FAULTS.items():
        # these folders hold logs and claims only, which is a fault of a submission
        lines = [line for line in faults[name] if line not in ("there is no README.md", "there is no train_gpt.py")]
        assert len(lines) == len(faults[name]) - 2
        assert all(any(part in line for line in lines) for part in expected), (name, lines)
        assert [line for line in lines if not any(part in line for part in expected)] == [], name


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit_submission.main([str(write(tmp_path)), "--reference", "1.30"]) == 0
    shown = capsys.readouterr().out
    assert "in order: 3 seeds in the logs" in shown and "not checked: the tokenizer's byte counts" in shown
    assert audit_submission.main([str(tmp_path / "nowhere")]) == 2
