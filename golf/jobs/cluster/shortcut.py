"""Answer what a sweep's command line alone can tell, before any run of it is composed.

Composing takes 11 ms of processor time for each run: submitting 1,000 runs that have all finished takes 14 s with it,
and 2 to 3 s when `all_finished` recognizes the command.
"""

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
from golf.settings.usage import options_of

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
    """Return the values of conf/cluster/<name>.yaml, on top of those of the file that it extends."""
    path = CLUSTERS / f"{name}.yaml"
    if not path.exists():
        raise GolfError(f"cluster={name} does not exist: there are {', '.join(options_of('cluster'))}.")
    values = yaml.safe_load(path.read_text())
    extended = [d for d in values.pop("defaults", []) if (CLUSTERS / f"{d}.yaml").exists()]
    return {**(_cluster(extended[0]) if extended else {}), **values}


def all_finished(arguments: Sequence[str]) -> str | None:
    """Return a line to print if this command was given before with the same code and all its runs have finished.

    None means that the runs have to be composed.
    """
    record = _earlier(arguments)
    # Refused runs have to be told again with their reasons, which only composing them finds.
    if record is None or record.refused or any(a.startswith("launch.fresh") for a in arguments):
        return None
    if not all(finished_run(run["variant_id"], run["seed"]) for run in record.runs):
        return None
    return f"sweep {record.name}: 0 to submit, {len(record.runs)} finished"


def note_command(name: str, arguments: Sequence[str]) -> None:
    """Write down that `arguments` stand for sweep `name`, for as long as code and configuration do not change."""
    write_json(sweep_folder(name) / "command.json", {"arguments": sorted(arguments), "code": code_digest()})


def _earlier(arguments: Sequence[str]) -> SweepRecord | None:
    """Return the sweep that the same arguments and code made before, None if there is none."""
    asked = {"arguments": sorted(arguments), "code": code_digest()}
    for path in runs_root().glob("sweeps/*/command.json"):
        with contextlib.suppress(OSError, ValueError):
            if json.loads(path.read_text()) == asked:
                return read_record(path.parent.name)
    return None
