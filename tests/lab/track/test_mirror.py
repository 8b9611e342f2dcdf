"""The real client mirrors runs in its own process: offline, to a server on this machine, and to servers that fail."""

from __future__ import annotations

import errno
import importlib
import importlib.abc
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from golf.lab.corpora.own_text import OwnDataset
from golf.lab.track.companion import mirrored
from golf.lab.track.mirror_record import INCOMPLETE, OFFLINE, UPLOADED, MirrorRecord
from golf.run.folder import RunFolder
from golf.settings.config import Config
from golf.settings.jobs_config import TrackConfig
from tests.lab.report.runs import write_run
from tests.support import ROOT, Done, golf_command, golf_main, golf_train, only_run, tiny_overrides
from tests.wandb_server import DEAD, KEY, WandbServer, serve_wandb

pytestmark = pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="needs wandb")
OF_THE_MIRROR = ("wandb", "golf.lab.track")
DERIVED = {"val_bpb", "val_loss", "how", "tokens_per_second"}  # in the summary besides what result.json has


def inspect(folder: Path, *options: str) -> str:
    """Return what W&B's own tool reads in the local files of a run."""
    (log,) = (folder / record(folder).files).glob("*.wandb")
    command = [sys.executable, "-m", "wandb", "leet", "inspect", *options, "--json", str(log)]
    environment = {**os.environ, "TMPDIR": str(folder)}  # where the tool writes a log of its own
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment, timeout=900).stdout


def record(folder: Path) -> MirrorRecord:
    found = MirrorRecord.read(folder)
    assert found is not None
    return found


def expected_rows(folder: Path) -> list[dict[str, Any]]:
    """Return metrics.jsonl with the documented keys, built without the code under test."""
    rows = []
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        event = json.loads(line)
        kind, row = event.pop("event"), {}
        for key, value in event.items():
            if key in ("step", "train_seconds", "tokens"):
                row[key] = value
            elif kind in ("train", "validation"):
                row[
                    f"{kind[:3] if kind == 'validation' else kind}/{key.removeprefix('train_').removeprefix('val_')}"
                ] = value
            else:
                row[f"{kind}/{key}"] = value
        rows.append(row)
    return rows


def without_own(values: dict[str, Any]) -> dict[str, Any]:
    """Return `values` without those that W&B adds, whose names begin with an underscore."""
    return {key: value for key, value in values.items() if not key.startswith("_")}


def assert_summary(summary: dict[str, Any], folder: Path) -> None:
    """Check that the summary has every value of result.json, and no value from outside result and history."""
    result = json.loads((folder / "result.json").read_text())
    for key, value in result.items():
        for name, leaf in (
            {f"{key}/{k}": v for k, v in value.items()}.items() if isinstance(value, dict) else [(key, value)]
        ):
            assert summary.get(name) == leaf, name
    assert summary["val_bpb"] == result["post_quant"]["val_bpb"]
    known = set().union(*expected_rows(folder)) | DERIVED | {k for k in summary if k.partition("/")[0] in result}
    assert set(without_own(summary)) <= known


def replayed(finished: Path, target: Path, track: TrackConfig) -> Path:
    """Mirror the same run once more, with files that grow line by line and a result at the end."""
    folder = target / finished.parent.name / finished.name
    folder.mkdir(parents=True)
    for name in ("config.json", "environment.json", "config.yaml", "train.log", "artifact.golf"):
        shutil.copy(finished / name, folder / name)
    with mirrored(RunFolder(folder), track):
        with (folder / "metrics.jsonl").open("a", buffering=1) as metrics:
            metrics.writelines((finished / "metrics.jsonl").read_text().splitlines(keepends=True))
        for name in ("result.json", "curves.png"):
            shutil.copy(finished / name, folder / name)
    return folder


def online(**settings: Any) -> TrackConfig:
    return TrackConfig(backend="wandb", mode="online", **{"finish_seconds": 900.0, "init_seconds": 300.0, **settings})


@pytest.mark.slow
def test_what_is_recorded_offline_equals_the_files_of_the_run(finished: Path) -> None:
    entries = [json.loads(line) for line in inspect(finished).splitlines()]
    rows = [without_own(entry["history"]["item"]) for entry in entries if entry["type"] == "history"]
    assert rows == expected_rows(finished) and len(rows) > 8
    (run,) = (entry["run"] for entry in entries if entry["type"] == "run")
    assert run["run_group"] == finished.parent.name and run["job_type"] == "train"
    assert run["run_id"] == record(finished).id and run["display_name"].endswith("seed1337")
    assert set(run["tags"]) == {"laptop", "own", "xsa"}
    axes = {e["metric"]["glob_name"]: e["metric"]["step_metric"] for e in entries if e["type"] == "metric"}
    assert axes == {"train/*": "train_seconds", "val/*": "train_seconds"}
    read = json.loads(inspect(finished, "--summary"))
    assert read["state"] == "finished" and read["exit_code"] == 0 and record(finished).state == OFFLINE
    assert_summary(read["summary"], finished)
    config = json.loads((finished / "config.json").read_text())
    assert read["config"]["optim/matrix_lr"] == config["optim"]["matrix_lr"] and read["config"]["tech/xsa"] is True
    assert read["config"]["variant"] == finished.parent.name and "track/mode" not in read["config"]


def test_without_a_mirror_nothing_of_it_is_imported(
    tiny: OwnDataset, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    class Watch(importlib.abc.MetaPathFinder):
        def find_spec(self, name: str, path: object, target: object = None) -> None:
            seen.append(name)

    for name in [n for n in sys.modules if n.startswith(OF_THE_MIRROR)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Watch(), *sys.meta_path])
    assert golf_main(*tiny_overrides(tiny)).returncode == 0
    assert json.loads((only_run(runs) / "result.json").read_text())["state"] == "ok"
    assert not [name for name in seen if name.startswith(OF_THE_MIRROR)]
    assert not (only_run(runs) / "track.json").exists()
    importlib.import_module("golf.lab.track.mirror_record")
    assert "golf.lab.track.mirror_record" in seen


def test_a_run_arrives_at_a_server(finished: Path, tmp_path: Path, server: WandbServer) -> None:
    folder = replayed(finished, tmp_path, online(attach=["config", "artifact", "curves"], tags=["mine"], entity="team"))
    assert record(folder).state == UPLOADED and record(folder).warning == ""
    run = server.runs[record(folder).id]
    assert run.complete and [without_own(row) for row in run.history] == expected_rows(folder)
    assert_summary(run.summary, folder)
    assert run.config["data/name"] == "own" and "mine" in run.described["tags"]
    assert (run.described["entity"], run.described["project"]) == ("team", "golf")
    name = f"artifacts/files-{record(folder).id}/artifact.golf"
    assert server.uploads[name] == (folder / "artifact.golf").read_bytes()
    assert {Path(path).name for path in server.uploads} >= {"config.yaml", "artifact.golf", "curves.png"}


def misbehave(server: WandbServer, how: str, patch: pytest.MonkeyPatch) -> None:
    if how == "nobody listens":
        patch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    elif how == "refuses the key":
        server.refuse = lambda number: 401
    elif how == "refuses the key later":
        server.refuse = lambda number: 401 if number > 1 else None
    elif how == "dies in the middle":
        server.refuse = lambda number: DEAD if number > 2 else None
    elif how == "answers slowly":
        server.delay = 30.0


FAILURES = "nobody listens", "refuses the key", "refuses the key later", "dies in the middle", "answers slowly"


@pytest.mark.slow
@pytest.mark.parametrize("how", FAILURES)
def test_a_server_that_fails_costs_one_warning_and_nothing_is_lost(
    how: str,
    finished: Path,
    tmp_path: Path,
    server: WandbServer,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    misbehave(server, how, monkeypatch)
    # The client makes sockets in the folder for temporary files, and a socket's path is short.
    with tempfile.TemporaryDirectory() as temporary, monkeypatch.context() as patch:
        patch.setenv("TMPDIR", temporary)
        folder = replayed(finished, tmp_path, online(init_seconds=2.0, finish_seconds=20.0))
        assert not list(Path(temporary).iterdir())
    said = capfd.readouterr().err
    assert said.count("warning: W&B:") == 1 and "golf sync" in said and "Traceback" not in said
    assert (folder / "result.json").read_bytes() == (finished / "result.json").read_bytes()
    found = record(folder)
    assert found.state in (OFFLINE, INCOMPLETE) and found.warning in said
    if found.state == OFFLINE:  # else the machine was too busy to record it in time as well
        entries = [json.loads(line) for line in inspect(folder).splitlines()]
        rows = [without_own(entry["history"]["item"]) for entry in entries if entry["type"] == "history"]
        assert rows == expected_rows(folder)
    with serve_wandb() as good:
        done = sync(folder.parent.parent, good)
        assert done.returncode == 0, done.stderr
        assert [without_own(row) for row in good.runs[found.id].history] == expected_rows(folder)
    assert record(folder).state == UPLOADED


def sync(runs: Path, server: WandbServer, *options: str) -> Done:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**server.environment, "GOLF_RUNS": str(runs)}.items():
            patch.setenv(name, value)
        return golf_command("sync", *options)


def test_runs_made_without_a_mirror_are_uploaded_later_and_once(
    finished: Path, tmp_path: Path, server: WandbServer
) -> None:
    for seed in (1, 2):
        folder = tmp_path / finished.parent.name / f"seed{seed}"
        shutil.copytree(finished, folder, ignore=shutil.ignore_patterns("wandb", "track*"))
    (folder / "result.json").unlink()
    done = sync(tmp_path, server, "--project", "elsewhere")
    assert done.returncode == 0 and "1 mirrored, 1 without a result" in done.stdout, done.stderr
    ((id, run),) = server.runs.items()
    assert (
        run.described["project"] == "elsewhere" and id.partition("-s1-")[0] == finished.parent.name.rpartition("-")[2]
    )
    assert "0 mirrored, 1 there already, 1 without" in sync(tmp_path, server).stdout
    assert sync(tmp_path / "nothing", server).returncode == 2


def test_a_folder_that_cannot_be_written_is_one_sentence(
    runs: Path, server: WandbServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_run(runs, Config(), 1.2)

    def refuse(*_: object, **__: object) -> str:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("tempfile.mkdtemp", refuse)
    done = sync(runs, server)
    assert done.returncode == 2 and f"{folder}/track.log cannot be written (Permission denied)" in done.stderr
    assert done.stderr.count("\n") == 1 and not (folder / "track.log").exists()


@pytest.mark.slow
def test_a_killed_training_leaves_a_complete_record(finished: Path, tmp_path: Path) -> None:
    """The mirror sees that its training is gone, writes what there is and ends by itself."""
    folder = tmp_path / finished.parent.name / "seed1"
    folder.mkdir(parents=True)
    shutil.copy(finished / "config.json", folder)
    shutil.copy(finished / "metrics.jsonl", folder)
    code = (
        "import os, sys; from pathlib import Path; from golf.settings.jobs_config import TrackConfig; "
        "from golf.run.folder import RunFolder; from golf.lab.track.companion import start; "
        "track = TrackConfig(backend='wandb', mode='offline', finish_seconds=900.0); "
        "start(RunFolder(Path(sys.argv[1])), track); os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(folder)], cwd=ROOT, timeout=900, capture_output=True)
    assert killed.returncode == -signal.SIGKILL
    for _ in range(9000):
        if (found := MirrorRecord.read(folder)) and found.state == OFFLINE:
            break
        time.sleep(0.05)
    read = json.loads(inspect(folder, "--summary"))
    assert read["summary"]["state"] == "unfinished" and read["state"] == "failed"
    assert (
        read["summary"]["train/loss"] == [row for row in expected_rows(folder) if "train/loss" in row][-1]["train/loss"]
    )


@pytest.mark.slow
def test_a_run_from_the_command_line_goes_on_without_a_server(
    tiny: OwnDataset, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    done = golf_train("track=wandb", "track.init_seconds=3", *tiny_overrides(tiny), "launch.nproc=2")
    assert done.returncode == 0 and "track.mode=online (WANDB_API_KEY is set)" in done.stdout
    assert done.stderr.count("warning: W&B:") == 1
    assert json.loads((only_run(runs) / "result.json").read_text())["state"] == "ok"


AGENT = {"WANDB_SWEEP_ID": "agentsweep", "WANDB_RUN_ID": "agentrun"}


@pytest.mark.slow
@pytest.mark.parametrize("in_sweep", [False, True])
def test_runs_of_a_sweep_under_an_agent_stay_two_and_a_single_one_is_the_agents(
    in_sweep: bool, tiny: OwnDataset, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in AGENT.items():
        monkeypatch.setenv(name, value)
    overrides = [
        *tiny_overrides(tiny),
        "track=wandb",
        "track.mode=offline",
        "track.finish_seconds=900",
        "schedule.iterations=2",
    ]
    done = golf_main(*(["-m", *overrides, "seed=1,2"] if in_sweep else overrides))
    assert done.returncode == 0, done.stderr
    records = [json.loads(path.read_text()) for path in runs.glob("*/seed*/track.json")]
    ids = {record["id"] for record in records}
    assert all(record["files"].endswith(f"-{record['id']}") for record in records)
    assert ids == {"agentrun"} if not in_sweep else len(ids) == 2 and "agentrun" not in ids
