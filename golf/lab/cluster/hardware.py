"""Read from the command line which cluster's nodes the runs are for, before any of them is composed."""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from golf.errors import GolfError
from golf.lab.cluster.rented import machine_of
from golf.paths import ROOT
from golf.settings.hardware import Hardware, node_with
from golf.settings.usage import options_of

CLUSTERS = ROOT / "conf" / "cluster"


def cluster_hardware(arguments: Sequence[str]) -> Hardware | None:
    """Return the hardware of a node of `cluster=…`, for which `auto` settings are chosen; None for this machine."""
    if not (named := [a.partition("=")[2] for a in arguments if a.startswith("cluster=")]):
        return None
    values = _cluster(named[-1])
    if values.get("executor", "local") == "local":
        return None
    for argument in arguments:
        key, _, value = argument.partition("=")
        if key.startswith("cluster."):
            # Hydra takes a value in quotes for what is in them.
            values[key.removeprefix("cluster.")] = value[1:-1] if value[:1] in ("'", '"') else value
    if values["executor"] == "ssh" and "gpu_name" not in values:
        return machine_of(values.get("host", ""), values.get("ssh", "ssh"))
    return node_with(int(values.get("gpus", 0)), str(values.get("gpu_name", "")))


def _cluster(name: str) -> dict:
    """Return the values of conf/cluster/<name>.yaml, on top of those of the file that it extends."""
    if not (path := CLUSTERS / f"{name}.yaml").exists():
        raise GolfError(f"cluster={name} does not exist: there are {', '.join(options_of('cluster'))}.")
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    extended = [d for d in values.pop("defaults", []) if (CLUSTERS / f"{d}.yaml").exists()]
    return {**(_cluster(extended[0]) if extended else {}), **values}
