"""Other people's runs arrive at a server as one run each, with curves and the keys of our own runs."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from golf.jobs.track.mirror_record import MirrorRecord
from tests.foreign.imports import imported_rows
from tests.support import ROOT, script_main
from tests.wandb_server import ServedRun, WandbServer

pytestmark = pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="needs wandb")
FIXTURES = ROOT / "tests" / "foreign" / "fixtures"
VALIDATION = re.compile(r"step:(\d+)/\d+ val_loss:([\d.]+) val_bpb:([\d.]+) train_time:(\d+)ms")


def test_an_imported_submission_is_back_filled_run_by_run(runs: Path, server: WandbServer) -> None:
    for name in ("a_standard", "f_crashed"):
        assert script_main("import_runs", str(FIXTURES / name)).returncode == 0
    done = script_main("sync_wandb")
    assert done.returncode == 0 and "2 mirrored" in done.stdout, done.stderr
    sent = {run.config["name"]: run for run in server.runs.values()}
    rows = imported_rows(runs)
    assert set(sent) == {row.name for row in rows} and len(rows) == 5
    for row in rows:
        run = sent[row.name]
        assert run.complete and run.described["jobType"] == "import" and "imported" in run.described["tags"]
        assert (run.summary["state"], run.summary.get("val_bpb")) == (row.state, row.val_bpb)
        assert run.summary.get("post_quant/val_bpb") == row.post_quant_bpb
        assert run.summary.get("total_bytes") == row.total_bytes and run.config.get("seed") == row.seed
    assert len({run.config["variant"] for name, run in sent.items() if name.startswith("a_standard")}) == 1
    assert_curve(sent["a_standard/train"], FIXTURES / "a_standard" / "train.log")
    assert "2 there already" in script_main("sync_wandb").stdout
    assert {MirrorRecord.open(path).state for path in (runs / "imported").iterdir()} == {"uploaded"}


def assert_curve(run: ServedRun, log: Path) -> None:
    lines = [m for m in map(VALIDATION.match, log.read_text().splitlines()) if m]
    expected = [(int(m[1]), float(m[3]), int(m[4]) / 1000) for m in lines]
    rows = [row for row in run.history if "val/bpb" in row]
    assert [(row["step"], row["val/bpb"], row["train_seconds"]) for row in rows] == expected and expected
    assert all(row["tokens"] == row["step"] * 524_288 for row in rows)


@pytest.mark.slow
def test_a_damaged_import_is_one_sentence_and_curves_need_their_logs(
    runs: Path, server: WandbServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "theirs" / "train_seed42.log"
    log.parent.mkdir()
    log.write_text((FIXTURES / "m_compatible" / "train_seed42.log").read_text())
    assert script_main("import_runs", str(log.parent)).returncode == 0
    log.unlink()
    assert script_main("sync_wandb").returncode == 0
    (run,) = server.runs.values()
    assert run.history == [] and run.summary["val_bpb"] == 1.1200138
    (runs / "imported" / "theirs" / "import.json").write_text("{}")
    done = script_main("sync_wandb")
    assert done.returncode == 1 and "import it again" in capfd.readouterr().err
