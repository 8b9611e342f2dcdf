"""What the files of a run are called in a tracker: configuration, history and summary, all flat, parts joined by `/`.

docs/tracking.md lists the keys. W&B advises against dots in names, and groups charts by what precedes the slash.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

AXES = ("step", "train_seconds", "tokens")
PREFIXES = {"validation": "val"}  # events whose charts have another name
SCORES = ("post_quant", "post_quant_sliding", "post_quant_ttt")  # of the artifact, the one that counts last
UNFINISHED = "unfinished"  # a run that left no result


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves of a nested dict with their keys."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}/")
        else:
            yield f"{prefix}{key}", value


def config_values(folder: Path) -> dict[str, Any]:
    """The configuration of a run and where it ran: `optim/matrix_lr`, `tech/xsa`, `seed`, `machine/gpu`."""
    config = read_object(folder / "config.json")
    values = dict(flat({key: value for key, value in config.items() if key != "track"}))
    techniques = list(config.get("tech", {}))
    values |= {"variant": folder.parent.name, "tech": techniques, **{f"tech/{name}": True for name in techniques}}
    environment = read_object(folder / "environment.json")
    values |= {f"machine/{key}": environment[key] for key in ("cpu", "cpu_cores", "gpu", "gpus") if key in environment}
    return values | {f"git/{key}": value for key, value in environment.get("git", {}).items()}


def history_row(event: Mapping[str, Any]) -> dict[str, Any]:
    """A line of metrics.jsonl: `train_loss` of event `train` is `train/loss`; the axes keep their names."""
    prefix = PREFIXES.get(event["event"], event["event"])
    return {
        key if key in AXES else f"{prefix}/{key.removeprefix(f'{prefix}_')}": value
        for key, value in event.items()
        if key != "event"
    }


def summary_values(folder: Path) -> dict[str, Any]:
    """`result.json`, flat, and what tables are sorted by: the score that counts and the speed."""
    result = read_object(folder / "result.json")
    if not result:
        return {"state": UNFINISHED, "reason": "no result.json: it is running or was killed"}
    values = dict(flat(result))
    final: dict[str, Any] = next((result[key] for key in reversed(SCORES) if result.get(key)), {})
    values |= {key: final[key] for key in ("val_bpb", "val_loss", "how") if key in final}
    if result.get("train_seconds"):
        values["tokens_per_second"] = result["tokens_seen"] / result["train_seconds"]
    return values


def sweep_of(folder: Path) -> str | None:
    """The sweep that asked for this run, the latest if several did; None for a run of its own."""
    variant_id, seed = folder.parent.name.rpartition("-")[2], folder.name.removeprefix("seed").partition(".")[0]
    records = sorted(folder.parent.parent.glob("sweeps/*/sweep.json"), key=lambda path: -path.stat().st_mtime)
    for record in map(read_object, records):
        if any((run["variant_id"], str(run["seed"])) == (variant_id, seed) for run in record.get("runs", [])):
            return str(record["name"])
    return None


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in `path`; empty if there is none that can be read."""
    try:
        values = json.loads(path.read_bytes())
        return values if isinstance(values, dict) else {}
    except (OSError, ValueError):
        return {}
