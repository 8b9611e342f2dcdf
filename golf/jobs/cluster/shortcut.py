"""What can be known of a submission before its runs are composed, which takes a moment for each."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence

import yaml

from golf.errors import GolfError
from golf.files import write_json
from golf.jobs.cluster.snapshot import code_digest
from golf.jobs.sweep.record import SweepRecord, read_record, sweep_folder
from golf.paths import ROOT
from golf.run.folder import finished_run, runs_root
from golf.settings.hardware import Hardware, node_with

CLUSTERS = ROOT / "conf" / "cluster"


def cluster_hardware(arguments: Sequence[str]) -> Hardware | None:
    """Return the hardware of a node of `cluster=…`, for which `auto` settings are chosen; None if none is named."""
    named = [a.partition("=")[2] for a in arguments if a.startswith("cluster=")]
    if not named:
        return None
    values = _cluster(named[-1])
    for argument in arguments:
        key, _, value = argument.partition("=")
        if key.startswith("cluster.gpu"):
            values[key.removeprefix("cluster.")] = value
    return node_with(int(values.get("gpus", 0)), str(values.get("gpu_name", "")))


def _cluster(name: str) -> dict:
    """The values of conf/cluster/<name>.yaml on top of those of the file that it extends."""
    path = CLUSTERS / f"{name}.yaml"
    if not path.exists():
        known = ", ".join(sorted(p.stem for p in CLUSTERS.glob("*.yaml")))
        raise GolfError(f"cluster={name} does not exist: there are {known}.")
    values = yaml.safe_load(path.read_text())
    extended = [d for d in values.pop("defaults", []) if (CLUSTERS / f"{d}.yaml").exists()]
    return {**(_cluster(extended[0]) if extended else {}), **values}


def all_finished(arguments: Sequence[str]) -> str | None:
    """A line if this very command, with this very code, was given before and all its runs have finished."""
    record = _earlier(arguments)
    if record is None or record.refused or any(a.startswith("launch.fresh") for a in arguments):
        return None
    if not all(finished_run(run["variant_id"], run["seed"]) for run in record.runs):
        return None
    return f"sweep {record.name}: 0 to submit, {len(record.runs)} finished"


def note_command(name: str, arguments: Sequence[str]) -> None:
    """Remember that sweep `name` is what `arguments` ask for, as long as code and configuration stay as they are."""
    write_json(sweep_folder(name) / "submission.json", {"arguments": sorted(arguments), "code": code_digest()})


def _earlier(arguments: Sequence[str]) -> SweepRecord | None:
    asked = {"arguments": sorted(arguments), "code": code_digest()}
    for path in runs_root().glob("sweeps/*/submission.json"):
        with contextlib.suppress(OSError, ValueError):
            if json.loads(path.read_text()) == asked:
                return read_record(path.parent.name)
    return None
