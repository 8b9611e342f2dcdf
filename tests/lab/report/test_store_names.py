"""Beginnings of names stand for sweeps and variants wherever only one begins so."""

from __future__ import annotations

from pathlib import Path

import pytest

from golf.errors import GolfError
from golf.files import write_json
from golf.lab.cluster.status import find_record
from golf.lab.report import store
from golf.lab.report.store import run_folders
from golf.run.folder import create_run_folder
from golf.run.identity import variant_id
from golf.run.result import Result
from golf.settings.config import Config
from tests.support import golf_command


def test_beginnings_of_names_are_enough(runs: Path) -> None:
    record = {"name": "by_seed-4f82aa11", "command": [], "created": "", "runs": [], "refused": []}
    write_json(runs / "sweeps/by_seed-4f82aa11/sweep.json", record)
    other = Config(name="other")
    other.model.num_layers = 3
    for cfg in (Config(), Config(seed=2), Config(name="renamed", seed=3), other):
        folder = create_run_folder(cfg, [])
        folder.write_result(Result(cfg.name, variant_id(cfg), cfg.seed, state="crashed", reason="x"))
    assert find_record("by_seed-4f").name == find_record("by").name == "by_seed-4f82aa11"
    assert (store.find_record("by_seed-4f", runs) or {})["name"] == "by_seed-4f82aa11"
    assert "by_seed-4f82aa11" in golf_command("status").stdout
    assert "by_seed-4f82aa11" in golf_command("report").stderr
    cfg = Config()
    assert {p.name for p in run_folders(Path(f"run-{variant_id(cfg)[:4]}"))} == {"seed1337", "seed2"}
    assert {p.name for p in run_folders(Path(variant_id(cfg)[:4]))} == {"seed1337", "seed2", "seed3"}
    assert [p.parent.name for p in run_folders(Path("oth"))] == [f"other-{variant_id(other)}"]
    create_run_folder(Config(name="run-of-others", model=other.model), [])
    with pytest.raises(GolfError, match=r"ru begins several variants; say which: run-.*, run-of-others-"):
        run_folders(Path("ru"))
    write_json(runs / "sweeps/by_name-00000000/sweep.json", {**record, "name": "by_name-00000000"})
    with pytest.raises(GolfError, match=r"by begins the names of several sweeps; say which: by_name-0.*, by_seed-4"):
        find_record("by")
