"""A sweep's table arrives at a server, and its runs are one group."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from golf.lab.report.findings import judged
from golf.lab.report.results import results_table
from golf.lab.report.study import read_study
from golf.lab.track.backfill import back_fill
from golf.lab.track.keys import sweep_of
from golf.lab.track.mirror_record import MirrorRecord
from golf.settings.config import RulesConfig
from golf.settings.jobs_config import TrackConfig
from tests.support import ROOT
from tests.wandb_server import WandbServer

pytestmark = pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="needs wandb")

ONLINE = TrackConfig(backend="wandb", mode="online", init_seconds=300.0, finish_seconds=900.0)


@pytest.fixture
def sweep(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a sweep of two variants with three seeds each, copies of one run with other scores."""
    monkeypatch.setenv("GOLF_RUNS", str(tmp_path))
    runs = []
    for variant, bpb in (("11111111", 1.5), ("22222222", 1.4)):
        for seed in (1, 2, 3):
            folder = tmp_path / f"mine-{variant}" / f"seed{seed}"
            shutil.copytree(finished, folder, ignore=shutil.ignore_patterns("wandb", "track*"))
            result = json.loads((folder / "result.json").read_text())
            result |= {"variant_id": variant, "seed": seed, "name": "mine"}
            result["post_quant"]["val_bpb"] = bpb + seed / 1000
            result["pre_quant"]["val_bpb"] = bpb - seed / 1000  # else they were one checkpoint in two formats
            (folder / "result.json").write_text(json.dumps(result))
            runs.append({"variant_id": variant, "seed": seed, "name": "mine", "overrides": [f"optim.matrix_lr={bpb}"]})
    record = {"name": "lr-0", "command": ["golf/train.py"], "runs": runs, "swept": ["optim.matrix_lr"], "kind": "grid"}
    folder = tmp_path / "sweeps" / "lr-0"
    folder.mkdir(parents=True)
    (folder / "sweep.json").write_text(json.dumps({**record, "reference": "11111111"}))
    return folder


@pytest.mark.slow
def test_the_table_arrives(sweep: Path, server: WandbServer) -> None:
    record = back_fill(sweep, ONLINE, RulesConfig(confidence=0.98))
    assert record is not None and record.id.startswith("report-lr-0-")
    run = server.runs[record.id]
    assert run.described["jobType"] == "report" and run.described["groupName"] == "lr-0" and run.complete
    (table,) = (json.loads(content) for path, content in server.uploads.items() if path.endswith("results.table.json"))
    expected = results_table(judged(read_study([str(sweep)]), RulesConfig(confidence=0.98)))
    shown = [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
    assert shown == [plain({key: row[key] for key in table["columns"]}) for row in expected.rows]
    by_value = {row["variant"]: row for row in shown}
    assert by_value["1.4"]["verdict"] == "better" and by_value["1.4"]["n"] == 3 and by_value["1.4"]["p"] < 0.01
    assert by_value["1.4"]["mean_bpb"] == pytest.approx(1.402) and by_value["1.5"]["verdict"] == "reference"
    assert MirrorRecord.open(sweep).state == "uploaded"


def plain(row: Any) -> dict[str, Any]:
    return json.loads(json.dumps(dict(row)))


def test_runs_of_a_sweep_are_one_group(sweep: Path) -> None:
    root = sweep.parent.parent
    assert sweep_of(root / "mine-11111111" / "seed2") == "lr-0"
    assert sweep_of(root / "mine-11111111" / "seed2.2") == "lr-0"  # another attempt at it
    assert sweep_of(root / "mine-11111111" / "seed4") is None and sweep_of(root / "mine-33333333" / "seed1") is None


def test_the_dashboard_is_printed_without_an_account(tmp_path: Path) -> None:
    """Its charts name keys that runs log, group seeds by variant with mean and sd, and show the table."""
    pytest.importorskip("wandb_workspaces")
    environment = {"PATH": "", "HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "WANDB_BASE_URL": "http://127.0.0.1:9"}
    command = [sys.executable, "scripts/dashboard.py", "--project", "mine", "--entity", "team", "--print"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=900)
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert (made["workspace"]["project"], made["workspace"]["entity"]) == ("mine", "team")
    section = made["workspace"]["spec"]["section"]
    panels = [panel for part in section["panelBankConfig"]["sections"] for panel in part["panels"]]
    lines = [panel["config"] for panel in panels if panel["viewType"] == "Run History Line Plot"]
    assert ("val/bpb", "train_seconds") in {(line["metrics"][0], line["xAxis"]) for line in lines}
    grouped = lines + [panel["config"] for panel in panels if panel["viewType"] == "Bar Chart"]
    assert {(c["groupBy"], c["groupAgg"], c["groupArea"]) for c in grouped} == {("variant.value", "mean", "stddev")}
    assert any(c["metrics"] == ["post_quant/val_bpb"] for c in grouped)
    (scatter,) = (panel["config"] for panel in panels if panel["viewType"] == "Scatter Plot")
    assert (scatter["xAxis"], scatter["yAxis"]) == ("summary:total_bytes", "summary:val_bpb")
    assert "results" in json.dumps([panel for panel in panels if panel["viewType"] == "Weave"])
    (state,) = section["runSets"][0]["filters"]["filters"]
    assert (state["key"]["name"], state["value"]) == ("state", "finished")
    assert "panel-grid" in {block["type"] for block in made["report"]["spec"]["blocks"]}
