"""Files appear whole or not at all."""

import errno
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from golf.errors import GolfError
from golf.files import disk_error, new_folder, refuse_unwritable, write_atomic, write_new


def test_content_is_replaced_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "deep/file"
    write_atomic(path, "one")
    write_atomic(path, b"two")
    assert path.read_bytes() == b"two"
    assert [p.name for p in path.parent.iterdir()] == ["file"]


def test_a_folder_is_no_place_for_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in (Path(), tmp_path):
        with pytest.raises(GolfError, match="cannot be written"):
            write_atomic(path, "new")
    assert not list(tmp_path.iterdir())


def test_a_full_disk_keeps_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomic(path, "old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(GolfError, match="No space left to write"):
        write_atomic(path, "new")
    assert path.read_text() == "old" and len(list(tmp_path.iterdir())) == 1


def test_leftovers_of_ended_writers_are_removed_and_no_others(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    here = platform.node()
    left = tmp_path / f".file.{here}.{ended.pid}"
    kept = [f".file.{here}.{os.getppid()}", f".file.elsewhere.{ended.pid}", f".other.{here}.{ended.pid}"]
    for path in (left, *(tmp_path / name for name in kept)):
        path.write_text("half")
    write_atomic(tmp_path / "file", "whole")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*kept, "file"])


@pytest.mark.parametrize("has_links", [True, False])
def test_a_new_file_never_replaces_one(has_links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    if not has_links:
        monkeypatch.setattr("os.link", refuse)
    path = tmp_path / "deep/file"
    assert write_new(path, "first") and not write_new(path, "second")
    assert path.read_text() == "first" and [p.name for p in path.parent.iterdir()] == ["file"]


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(KeyError), new_folder(tmp_path / "made") as unfinished:
        (unfinished / "a").write_text("a")
        raise KeyError
    assert list(tmp_path.iterdir()) == []
    with new_folder(tmp_path / "made") as unfinished:
        (unfinished / "a").write_text("a")
        assert not (tmp_path / "made").exists()
    assert (tmp_path / "made/a").read_text() == "a" and len(list(tmp_path.iterdir())) == 1


def test_a_folder_that_cannot_be_made_is_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refuse_unwritable(tmp_path / "not/yet/there")
    assert [path.name for path in tmp_path.iterdir()] == ["file"], "the check leaves nothing"
    for place in (tmp_path / "file/folder", Path("/proc/folder"), tmp_path / ("x" * 300)):
        with pytest.raises(GolfError, match="cannot be written"):
            refuse_unwritable(place)


def test_the_first_of_two_builders_wins(tmp_path: Path) -> None:
    with new_folder(tmp_path / "made") as slow:
        (slow / "who").write_text("slow")
        with new_folder(tmp_path / "made") as fast:
            (fast / "who").write_text("fast")
    assert (tmp_path / "made/who").read_text() == "fast" and len(list(tmp_path.iterdir())) == 1


def test_sentences_for_what_the_disk_refuses() -> None:
    assert "free some" in str(disk_error(Path("x"), OSError(errno.ENOSPC, "")))
    assert "permissions" in str(disk_error(Path("x"), OSError(errno.EACCES, "Permission denied")))
    # Of a copied tree that did not fit.
    assert "free some" in str(disk_error(Path("x"), shutil.Error([("a", "b", "[Errno 28] No space left on device")])))


@pytest.mark.parametrize(
    "number, cure", [(errno.EFBIG, "ulimit -f"), (errno.EDQUOT, "quota"), (errno.ENAMETOOLONG, "shorter")]
)
def test_only_permissions_are_called_permissions(number: int, cure: str) -> None:
    said = str(disk_error(Path("x"), OSError(number, os.strerror(number))))
    assert cure in said and "permissions" not in said and os.strerror(number) in said
