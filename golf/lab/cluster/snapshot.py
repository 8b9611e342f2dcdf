"""Copy code and configuration for the jobs of a sweep, so that later edits of the working tree do not reach them."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from golf.files import new_folder, write_json
from golf.idea_folders import PACKAGE, Idea, ideas
from golf.paths import ROOT
from golf.run.environment import digest_of_files, git_state, package_versions

COPIED = ("golf", "conf", "hydra_plugins", "pyproject.toml")
NOT_COPIED = shutil.ignore_patterns("__pycache__", "*.egg-info")


def take_snapshot(folder: Path) -> Path:
    """Copy the code into `folder`/<hash of its content> unless it is there, and return that path.

    `snapshot.json` has the commit and the package versions, `dirty.diff` the difference from the commit.
    `requirements.txt` names the packages that are needed besides torch, and `data` is a link to the data sets.
    """
    if (snapshot := folder / code_digest()).exists():
        return snapshot
    with new_folder(snapshot) as unfinished:
        for name in COPIED:
            if (source := ROOT / name).is_dir():
                shutil.copytree(source, unfinished / name, ignore=NOT_COPIED)
            else:
                shutil.copy2(source, unfinished / name)
        for idea in _copied_ideas():
            shutil.copytree(idea.folder, unfinished / PACKAGE / idea.name, ignore=_only_code)
            # Files that the code names are no modules.
            for path in idea.code()[idea.folder]:
                shutil.copy2(path, unfinished / PACKAGE / idea.name / path.relative_to(idea.folder))
        # A rented machine has a torch of its own, made for its GPUs.
        needed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
        others = [package for package in needed if not package.startswith("torch")]
        (unfinished / "requirements.txt").write_text("\n".join([*others, ""]), encoding="utf-8")
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
    digests = [f"{idea.name} {idea.digest()}" for idea in _copied_ideas()]
    own = digest_of_files(ROOT / name for name in COPIED)
    return own if not digests else hashlib.sha256("\n".join([own, *digests]).encode()).hexdigest()[:12]


def _copied_ideas() -> list[Idea]:
    """Return the ideas in folders; those of installed packages stay where they are."""
    return [idea for idea in ideas().values() if idea.module.startswith(f"{PACKAGE}.")]


def _only_code(folder: str, names: list[str]) -> list[str]:
    """Return the names that `copytree` leaves out: an idea's folder may hold data and results, too."""
    return [n for n in names if n == "__pycache__" or not (n.endswith((".py", ".yaml")) or Path(folder, n).is_dir())]


def _diff() -> bytes:
    """Return the difference of the copied files from the commit; empty outside a git repository."""
    try:
        command = ["git", "-C", str(ROOT), "diff", "HEAD", "--", *COPIED]
        return subprocess.run(command, capture_output=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        return b""
