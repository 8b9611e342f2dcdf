"""Checks of `golf doctor` on space and data: memory, disks, data sets, and the configuration of a default run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from golf.commands.diagnosis import NOTE, OK, PROBLEM, Diagnosis
from golf.paths import ROOT
from golf.system import free_memory_bytes, memory_bytes
from golf.words import counted

DATA = ROOT / "data"
ENOUGH_MEMORY_BYTES = 2 << 30
ENOUGH_DISK_BYTES = 2_000_000_000  # weights, artifact, logs and a checkpoint of the largest models here


def memory() -> Diagnosis:
    """Check the memory that is free, in a container the part that it may use."""
    total, free = memory_bytes(), free_memory_bytes()
    if total is None or free is None:
        return Diagnosis(OK, "memory", f"{total / 2**30:.1f} GiB" if total else "unknown on this system")
    text = f"{free / 2**30:.1f} of {total / 2**30:.1f} GiB free"
    if free < ENOUGH_MEMORY_BYTES:
        return Diagnosis(NOTE, "memory", text, "end other processes if a run is killed")
    return Diagnosis(OK, "memory", text)


def runs_disk() -> Diagnosis:
    """Check that runs can be written, and the space for them."""
    from golf.run.folder import runs_root

    return _disk("disk of runs", runs_root(), "set GOLF_RUNS to a folder with room")


def data_disk() -> Diagnosis:
    """Check that data sets can be written, and the space for them."""
    # Data that others have put there is enough to train.
    if not os.access(DATA, os.W_OK) and any(DATA.glob("datasets/*/*.bin")):
        return Diagnosis(OK, "disk of data", f"{DATA} is read-only")
    return _disk("disk of data", DATA, "make room, or link data/ to another disk")


def _disk(subject: str, folder: Path, advice: str) -> Diagnosis:
    # Before the first run the folder does not exist yet.
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    text = f"{free / 1e9:,.1f} GB free in {folder}"
    if not os.access(existing, os.W_OK):
        return Diagnosis(PROBLEM, subject, f"{existing} cannot be written", advice)
    if free < ENOUGH_DISK_BYTES:
        return Diagnosis(NOTE, subject, text, advice)
    return Diagnosis(OK, subject, text)


def data() -> Diagnosis:
    """Check for FineWeb, else for the embedded corpus or the packages that it is built from."""
    from golf.settings.hardware import FINEWEB_VAL

    if FINEWEB_VAL.exists():
        shards = len(list(FINEWEB_VAL.parent.glob("fineweb_train_*.bin")))
        state, advice = (OK, "") if shards else (NOTE, "`golf data get` downloads training shards")
        return Diagnosis(state, "data", f"FineWeb sp1024 with {shards} training shards", advice)
    if list(DATA.glob("datasets/pydocs_*/*.bin")):
        return Diagnosis(OK, "data", "embedded corpus data=pydocs; `golf data get` downloads FineWeb")
    from golf.run.environment import package_version
    from golf.training.data.pydocs import VERSIONS

    if wrong := [f"{name} {wanted}" for name, wanted in VERSIONS.items() if package_version(name) != wanted]:
        advice = "run `pip install -e .` in golf's folder, or `golf data get`"
        return Diagnosis(PROBLEM, "data", f"none; data=pydocs is built from {', '.join(wrong)}, not installed", advice)
    return Diagnosis(OK, "data", "the first run builds data=pydocs in ten seconds; `golf data get` downloads FineWeb")


def default_run() -> Diagnosis:
    """Compose the configuration of `golf train`."""
    from golf.errors import GolfError
    from golf.settings.composition import compose

    try:
        cfg = compose()
    except GolfError as error:
        return Diagnosis(PROBLEM, "default run", str(error), "mend conf/, or check out the repository again")
    length = f"{cfg.budget.train_seconds:g} s" if cfg.budget.train_seconds else counted(cfg.schedule.iterations, "step")
    launch = f"{cfg.launch.nproc}× {cfg.launch.device}, {cfg.model.compute_dtype}, compile={cfg.launch.compile}"
    return Diagnosis(OK, "default run", f"model={cfg.model.name} data={cfg.data.name}, {length} on {launch}")
