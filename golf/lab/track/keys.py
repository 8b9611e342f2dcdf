"""Name the values of a run's files for a tracker: configuration, history and summary, flat, with parts joined by `/`.

docs/tracking.md lists the keys. W&B advises against dots in names, and groups charts by the part before the slash.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from golf.files import read_object
from golf.run.folder import RunFolder, why_open
from golf.run.identity import flat

AXES = ("step", "train_seconds", "tokens")
PREFIXES = {"validation": "val"}  # events whose keys have another prefix
SCORES = ("post_quant", "post_quant_sliding", "post_quant_ttt")  # scores of the artifact; the last one present counts
UNFINISHED = "unfinished"  # state of a run without a result


def config_values(folder: Path) -> dict[str, Any]:
    """Return a run's settings, machine and commit: `optim/matrix_lr`, `tech/xsa`, `machine/gpu`, `git/commit`."""
    config = read_object(folder / "config.json")
    values = dict(flat(config, left_out=["track"], joint="/"))
    techniques = list(config.get("tech", {}))
    values |= {"variant": folder.parent.name, "tech": techniques, **{f"tech/{name}": True for name in techniques}}
    environment = read_object(folder / "environment.json")
    values |= {f"machine/{key}": environment[key] for key in ("cpu", "cpu_cores", "gpu", "gpus") if key in environment}
    return values | {f"git/{key}": value for key, value in environment.get("git", {}).items()}


def history_row(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return one line of metrics.jsonl by tracker keys: `train_loss` becomes `train/loss`; axes keep their names.

    Numbers that techniques log of themselves are `readings/NAME/KEY`.
    """
    prefix = PREFIXES.get(event["event"], event["event"])
    own = dict(flat(event.get("readings", {}), "readings/", joint="/"))
    names = {key: key if key in AXES else f"{prefix}/{key.removeprefix(f'{prefix}_')}" for key in event}
    return {names[key]: value for key, value in event.items() if key not in ("event", "readings")} | own


def summary_values(folder: Path) -> dict[str, Any]:
    """Return `result.json` flat, with the score that counts and the speed in tokens per second added."""
    if not (result := read_object(folder / "result.json")):
        return {"state": UNFINISHED, "reason": why_open(RunFolder(folder))}
    values = dict(flat(result, joint="/"))
    final: dict[str, Any] = next((result[key] for key in reversed(SCORES) if result.get(key)), {})
    values |= {key: final[key] for key in ("val_bpb", "val_loss", "how") if key in final}
    if result.get("train_seconds"):
        values["tokens_per_second"] = result["tokens_seen"] / result["train_seconds"]
    return values


def sweep_of(folder: Path) -> str | None:
    """Return the name of the latest sweep that has this run; None if no sweep has it."""
    variant_id, seed = folder.parent.name.rpartition("-")[2], folder.name.removeprefix("seed").partition(".")[0]
    records = sorted(folder.parent.parent.glob("sweeps/*/sweep.json"), key=lambda path: -path.stat().st_mtime)
    for record in map(read_object, records):
        if any((run["variant_id"], str(run["seed"])) == (variant_id, seed) for run in record.get("runs", [])):
            return str(record["name"])
    return None
