"""Check a run's inputs before its folder is made, and its machine before its ranks start."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from golf.artifact.codec.codecs import require_codec
from golf.errors import GolfError
from golf.files import disk_errors
from golf.launch.process import own_family
from golf.paths import ROOT, resolve
from golf.run.environment import package_versions
from golf.run.folder import RunFolder, runs_root
from golf.run.locks import is_held
from golf.settings.config import Config, changes_steps
from golf.settings.hardware import require_device
from golf.settings.jobs_config import is_tracked
from golf.training.data.batches import make_loader
from golf.training.data.dataset import embedded_places, is_unbuilt, open_dataset
from golf.training.memory import check_memory
from golf.training.model.build import build_model, shapeless_model
from golf.training.model.weights import load_weights
from golf.training.optim.groups import build_optimizer
from golf.training.services import SERVICES

FREE_BYTES = 2_000_000_000  # space for weights, artifact, logs and a checkpoint of the largest models
BUSY_MIB = 64  # GPU memory that a driver's own helper processes may hold
HARMFUL = {  # environment variables that slow training down
    ("NCCL_IB_DISABLE", "1"): "sends what nodes exchange over Ethernet: unset it",
    ("NCCL_P2P_DISABLE", "1"): "sends what GPUs exchange through host memory: unset it",
    ("CUDA_LAUNCH_BLOCKING", "1"): "makes the host wait for every kernel: unset it",
    ("TORCH_DISTRIBUTED_DEBUG", "DETAIL"): "checks every collective while the clock runs: unset it",
}
FORMAT = "--format=csv,noheader,nounits"
GPUS, PROCESSES = "--query-gpu=index,uuid", "--query-compute-apps=gpu_uuid,pid,used_memory,process_name"


def check_inputs(cfg: Config) -> None:
    """Raise `GolfError` for a device, memory, packages, data or starting weights that cannot be used.

    A missing embedded corpus is built.
    """
    require_device(cfg.launch.device)
    check_memory(cfg)
    if changes_steps(cfg):
        # Rules that do not fit together are refused before the run has a folder.
        build_optimizer(cfg, shapeless_model(cfg))
    require_codec(cfg.quant.codec)
    if is_tracked(cfg.track):
        if SERVICES.check_tracker is None:
            raise GolfError(f"track={cfg.track.backend} needs golf/lab, which is not here: leave track=none.")
        SERVICES.check_tracker()
    if (cfg.quant.fit == "cap" or cfg.quant.prune.to_fit) and SERVICES.code_bytes is None:
        raise GolfError("quant.fit=cap and quant.prune.to_fit need golf/submission, which is not here: drop them.")
    if is_unbuilt(cfg.data) and (cfg.data.path, cfg.data.tokenizer_path) == embedded_places(cfg.data):
        print(f"building data={cfg.data.name} in {resolve(cfg.data.path)} (once, about ten seconds)", flush=True)
    # The loader is thrown away: it is made to find shards that cannot be read before the run has a folder.
    make_loader(cfg, open_dataset(cfg))
    if cfg.model.init_from:
        load_weights(build_model(cfg), resolve(cfg.model.init_from))


def check_runs_root() -> None:
    """Raise `GolfError` if no run folder can be made. What this made for the check is taken away again."""
    root = runs_root()
    made = next((path for path in (root, *root.parents) if path.exists()), root)
    with disk_errors(root):
        if not made.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(made))
        # The way to ask that is right for every user, file system and quota is to try.
        with tempfile.TemporaryFile(dir=made):
            pass


def check_machine(cfg: Config, folder: Path) -> list[str]:
    """Return warnings about this machine that can make the run slower or different, a sentence each.

    Raises `GolfError` with the first warning if `launch.unfit` is `refuse`.
    """
    hindrances = [f"{name}={value} {why}" for (name, value), why in HARMFUL.items() if os.environ.get(name) == value]
    hindrances += [*_little_space(folder), *_without_locks(folder), *_other_versions(), *_missing_shards(cfg)]
    if cfg.launch.device == "cuda":
        hindrances += busy_gpus()
    if hindrances and cfg.launch.unfit == "refuse":
        raise GolfError(f"This machine is not fit for a run: {hindrances[0]} (launch.unfit=warn runs all the same).")
    return hindrances


def busy_gpus() -> list[str]:
    """Return a sentence for every other process that holds memory of a GPU that this process may use.

    Jobs of a sweep have GPUs of their own, so they do not name each other.
    """
    mine, family, sentences = _visible_uuids(), own_family(), []
    for uuid, pid, memory, name in _rows(PROCESSES, columns=4):
        visible = mine is None or uuid.startswith(tuple(mine))
        if visible and memory.isdigit() and int(memory) > BUSY_MIB and pid not in family:
            sentences.append(f"process {pid} ({name}) holds {memory} MiB of a GPU: end it or wait for it")
    return sentences


def _visible_uuids() -> list[str] | None:
    """Return the UUIDs, or their beginnings, that CUDA_VISIBLE_DEVICES names; None if it hides no GPU."""
    if (named := os.environ.get("CUDA_VISIBLE_DEVICES")) is None:
        return None
    uuids = dict(_rows(GPUS, columns=2))
    return [uuids.get(name.strip(), name.strip()) for name in named.split(",") if name.strip()]


def _rows(query: str, columns: int) -> list[list[str]]:
    """Return what nvidia-smi lists, `columns` fields a row; nothing without a driver."""
    try:
        done = subprocess.run(
            ["nvidia-smi", query, FORMAT], capture_output=True, encoding="utf-8", check=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError):
        return []
    # The last column can be the name of a process, which may have commas in it.
    rows = [[part.strip() for part in line.split(",", columns - 1)] for line in done.stdout.splitlines()]
    return [row for row in rows if len(row) == columns]


def _little_space(folder: Path) -> list[str]:
    """Return a sentence if the disk of `folder` is nearly full."""
    free = shutil.disk_usage(folder).free
    sentence = f"only {free / 1e9:.1f} GB are free where {folder} is: make room for weights and checkpoints"
    return [sentence] if free < FREE_BYTES else []


def _without_locks(folder: Path) -> list[str]:
    """Return a sentence if the lock held on the run's `folder` does not show, as on some shared file systems."""
    lock = RunFolder(folder).lock
    sentence = f"the file system of {folder} carries no locks: start no run a second time while it is at work"
    return [sentence] if lock.exists() and not is_held(lock) else []


def _other_versions() -> list[str]:
    """Return a sentence for every package whose version differs from the submitted snapshot's.

    Empty when this code is not a snapshot.
    """
    try:
        snapshot = json.loads((ROOT / "snapshot.json").read_text(encoding="utf-8"))["packages"]
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
        manifest = json.loads((folder.parent / "manifest.json").read_text(encoding="utf-8"))
        entries = {entry["name"]: entry.get("stats") or {} for entry in manifest["datasets"]}
        published = int(entries[folder.name]["files_train"])
    except (OSError, ValueError, KeyError, TypeError):
        return []
    if (here := len(list(folder.glob(cfg.data.train_files)))) >= published:
        return []
    return [f"{here} of the {published} published training shards are here: `golf data get` fetches the rest"]
