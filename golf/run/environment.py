"""Environment of a run: versions, hardware, git state, command line."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from golf.paths import ROOT
from golf.settings.hardware import cpu_cores, cpu_name, detect
from golf.words import counted

PACKAGES = ("torch", "numpy", "sentencepiece", "zstandard", "safetensors", "hydra-core", "omegaconf")
# Variables that can change the speed of a run or its numbers.
ENVIRONMENT_PREFIXES = ("NCCL_", "OMP_", "MKL_", "CUDA_VISIBLE", "TORCH", "PYTORCH", "MALLOC_", "THP_")


def environment_record(command: list[str]) -> dict[str, Any]:
    """Return the content of `environment.json` for a run started by `command`."""
    hardware = detect()
    # Looked up and not imported: torch takes seconds, and a process without it has used no GPU.
    torch = sys.modules.get("torch")
    return {
        "command": command,
        # Seconds since 1970. Times of files are lost in a copy.
        "started_at": time.time(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": package_versions(),
        "cpu": cpu_name(),
        "cpu_cores": cpu_cores(),
        "cpu_bf16": hardware.cpu_bf16,
        "gpus": hardware.gpus,
        "gpu": hardware.gpu_name,
        "cuda": torch.version.cuda if torch else None,
        "git": git_state(),
        "variables": {k: v for k, v in sorted(os.environ.items()) if k.startswith(ENVIRONMENT_PREFIXES)},
    }


def package_versions() -> dict[str, str | None]:
    """Return the versions of the packages that results may depend on, None for those not installed."""
    return {name: package_version(name) for name in PACKAGES}


def machine_kind() -> str:
    """Return a name such as `8× NVIDIA H100 80GB HBM3` or `AMD EPYC, 2 cores`, one for machines of equal speed."""
    hardware = detect()
    return kind_of({"gpus": hardware.gpus, "gpu": hardware.gpu_name, "cpu": cpu_name(), "cpu_cores": cpu_cores()})


def kind_of(record: Mapping[str, Any]) -> str:
    """Return `machine_kind` of the machine that an environment.json records. Raises `KeyError` if it does not say."""
    if record.get("gpus"):
        return f"{record['gpus']}× {record['gpu']}"
    return f"{record['cpu']}, {counted(record['cpu_cores'], 'core')}"


def host_name() -> str:
    """Return the name of this machine, in a job of Slurm that of its node."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def digest_of_files(places: Iterable[Path]) -> str:
    """Return a hash of the files of the repository at or below `places`, twelve hex digits, without Python's caches."""
    total = hashlib.sha256()
    for place in places:
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if path.is_file() and "__pycache__" not in path.parts:
                # Names count, too: a file that was renamed is another module.
                total.update(f"{path.relative_to(ROOT)}\0".encode())
                total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()[:12]


def package_version(package: str) -> str | None:
    """Return the version of an installed package, None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def golf_version() -> str:
    """Return golf's version with the commit of its checkout, such as `0.3.0, commit 0123456789ab (edited)`."""
    project = ROOT / "pyproject.toml"
    # What pip has noted of an editable install is the version at that time.
    version = (
        tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"]
        if project.exists()
        else package_version("golf")
    )
    git = git_state()
    return f"{version}, commit {git['commit'][:12]}{' (edited)' if git['dirty'] else ''}" if git else str(version)


def git_state() -> dict[str, Any]:
    """Return the commit and whether tracked files differ from it; empty outside a checkout.

    A job's snapshot lies in the checkout, which may have moved on: the snapshot's commit is that when it was taken.
    """
    if (snapshot := ROOT / "snapshot.json").is_file():
        return json.loads(snapshot.read_text(encoding="utf-8"))["git"]
    # Without this, git would answer for a repository that golf's folder merely lies in.
    if not (ROOT / ".git").exists():
        return {}
    try:
        commit = _git("rev-parse", "HEAD")
        # Untracked files, such as data and outputs, would make every checkout look edited.
        return {"commit": commit, "dirty": bool(_git("status", "--porcelain", "--untracked-files=no"))}
    except (OSError, subprocess.SubprocessError):
        return {}


def _git(*arguments: str) -> str:
    # Git answers nobody but the owner of a checkout unless it is named as safe. Its code is running already.
    command = ["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, encoding="utf-8", check=True, timeout=10).stdout.strip()
