"""Copy code and configuration for the jobs of a sweep, so that later edits of the working tree do not reach them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from golf.files import new_folder, write_json
from golf.paths import ROOT
from golf.run.environment import digest_of_files, git_state, package_versions

COPIED = ("golf", "conf", "hydra_plugins", "pyproject.toml")
NOT_COPIED = shutil.ignore_patterns("__pycache__", "*.egg-info")


def take_snapshot(folder: Path) -> Path:
    """Copy the code into `folder`/<hash of its content> unless it is there, and return that path.

    `snapshot.json` has the commit and the package versions, `dirty.diff` the difference from the commit. `data` is a
    link to the data sets.
    """
    digest = code_digest()
    snapshot = folder / digest
    if snapshot.exists():
        return snapshot
    with new_folder(snapshot) as unfinished:
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, unfinished / name, ignore=NOT_COPIED)
            else:
                shutil.copy2(source, unfinished / name)
        # Data sets are too large to be copied with every state of the code.
        (unfinished / "data").symlink_to(ROOT / "data")
        if diff := _diff():
            (unfinished / "dirty.diff").write_bytes(diff)
        write_json(
            unfinished / "snapshot.json",
            {"of": str(ROOT), "git": git_state(), "python": sys.version.split()[0], "packages": package_versions()},
        )
    return snapshot


def code_digest() -> str:
    """Return a hash of everything that is copied, twelve hex digits."""
    return digest_of_files(ROOT / name for name in COPIED)


def _diff() -> bytes:
    """Return the difference of the copied files from the commit; empty outside a git repository."""
    try:
        command = ["git", "-C", str(ROOT), "diff", "HEAD", "--", *COPIED]
        return subprocess.run(command, capture_output=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        return b""
