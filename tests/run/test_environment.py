"""Version and commit that a run notes are those of the code it runs."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from golf.run import environment


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=A", "-c", "user.email=a@b.c"]
    done = subprocess.run(["git", "-C", str(folder), *who, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_commit_is_that_of_the_code_and_not_of_a_folder_around_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "golf"\nversion = "7.8.9"\n')
    git(tmp_path, "add", "pyproject.toml")
    git(tmp_path, "commit", "-qm", "first")
    commit = git(tmp_path, "rev-parse", "HEAD")
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    assert environment.git_state() == {"commit": commit, "dirty": False}
    assert environment.golf_version() == f"7.8.9, commit {commit[:12]}"
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "golf"\nversion = "8.0.0"\n')
    assert environment.golf_version() == f"8.0.0, commit {commit[:12]} (edited)"

    if os.geteuid() == 0:
        for path in (tmp_path, *tmp_path.rglob("*")):
            os.chown(path, 12345, -1)
        assert environment.git_state() == {"commit": commit, "dirty": True}, "a checkout of another user"
    copied = tmp_path / "inside"
    copied.mkdir()
    monkeypatch.setattr(environment, "ROOT", copied)
    assert environment.git_state() == {}, "the repository around it is another project"
    taken = {"commit": "a" * 40, "dirty": False}
    (copied / "snapshot.json").write_text(json.dumps({"git": taken}))
    assert environment.git_state() == taken, "the checkout may have moved on since the snapshot was taken"
