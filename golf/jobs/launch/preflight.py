"""Check a run's inputs before its folder is made, and its machine before its ranks start."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from golf.artifact.codec.codecs import require_codec
from golf.errors import GolfError
from golf.paths import ROOT, resolve
from golf.run.environment import package_versions
from golf.settings.config import Config, is_tracked
from golf.settings.hardware import require_device
from golf.training.data.batches import make_loader
from golf.training.data.dataset import is_unbuilt, open_dataset
from golf.training.model.build import build_model
from golf.training.model.weights import load_weights

FREE_BYTES = 2_000_000_000  # space for weights, artifact, logs and a checkpoint of the largest models
BUSY_MIB = 64  # GPU memory that a driver's own helper processes may hold
HARMFUL = {
    ("NCCL_IB_DISABLE", "1"): "sends what nodes exchange over Ethernet: unset it",
    ("NCCL_P2P_DISABLE", "1"): "sends what GPUs exchange through host memory: unset it",
    ("CUDA_LAUNCH_BLOCKING", "1"): "makes the host wait for every kernel: unset it",
    ("TORCH_DISTRIBUTED_DEBUG", "DETAIL"): "checks every collective while the clock runs: unset it",
}
QUERY = ("--query-compute-apps=pid,used_memory,process_name", "--format=csv,noheader,nounits")


def check_inputs(cfg: Config) -> None:
    """Raise `GolfError` for a device, packages, data or starting weights that cannot be used.

    A missing embedded corpus is built.
    """
    require_device(cfg.launch.device)
    require_codec(cfg.quant.codec)
    if is_tracked(cfg.track):
        from golf.jobs.track.companion import check_installed

        check_installed()
    if is_unbuilt(cfg.data):
        print(f"building data={cfg.data.name} in {resolve(cfg.data.path)} (once, about ten seconds)", flush=True)
    make_loader(cfg, open_dataset(cfg))
    if cfg.model.init_from:
        load_weights(build_model(cfg), resolve(cfg.model.init_from))


def check_machine(cfg: Config, folder: Path) -> list[str]:
    """Return warnings about this machine that can make the run slower or different, a sentence each.

    Raises `GolfError` with the first warning if `launch.unfit` is `refuse`.
    """
    found = [*_harmful_variables(os.environ), *_little_space(folder), *_other_versions(), *_missing_shards(cfg)]
    if cfg.launch.device == "cuda":
        found += busy_gpus()
    if found and cfg.launch.unfit == "refuse":
        raise GolfError(f"This machine is not fit for a run: {found[0]} (launch.unfit=warn runs all the same).")
    return found


def busy_gpus() -> list[str]:
    """Return a sentence for every process that holds memory of a GPU of this machine."""
    try:
        listed = subprocess.run(["nvidia-smi", *QUERY], capture_output=True, text=True, check=True, timeout=30).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    sentences = []
    for line in listed.splitlines():
        pid, memory, name = (part.strip() for part in line.split(",", 2))
        if memory.isdigit() and int(memory) > BUSY_MIB:
            sentences.append(f"process {pid} ({name}) holds {memory} MiB of a GPU: end it or wait for it")
    return sentences


def _harmful_variables(environment: Mapping[str, str]) -> list[str]:
    """Return a sentence for every environment variable that slows training down."""
    return [f"{name}={value} {why}" for (name, value), why in HARMFUL.items() if environment.get(name) == value]


def _little_space(folder: Path) -> list[str]:
    """Return a sentence if the disk of `folder` is nearly full."""
    free = shutil.disk_usage(folder).free
    if free >= FREE_BYTES:
        return []
    return [f"only {free / 1e9:.1f} GB are free where {folder} is: make room for weights and checkpoints"]


def _other_versions() -> list[str]:
    """Return a sentence for every package whose version differs from the submitted snapshot's.

    Empty when this code is not a snapshot.
    """
    try:
        snapshot = json.loads((ROOT / "snapshot.json").read_text())["packages"]
    except (OSError, ValueError, KeyError):
        return []
    here = package_versions()
    return [
        f"{name} is {here.get(name)} here and was {version} where the sweep was submitted: use one environment"
        for name, version in snapshot.items()
        if here.get(name) != version
    ]


def _missing_shards(cfg: Config) -> list[str]:
    """Return a sentence if only a part of the published training shards is here: upstream's runs read all of them."""
    folder = resolve(cfg.data.path)
    try:
        manifest = json.loads((folder.parent / "manifest.json").read_text())
        entries = {entry["name"]: entry.get("stats") or {} for entry in manifest["datasets"]}
        published = int(entries[folder.name]["files_train"])
    except (OSError, ValueError, KeyError, TypeError):
        return []
    here = len(list(folder.glob(cfg.data.train_files)))
    if here >= published:
        return []
    return [f"{here} of the {published} published training shards are here: `golf data get` fetches the rest"]
