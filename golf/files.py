"""Atomic writing of files and folders: a reader sees the old content or the new one, never a part."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from golf.errors import GolfError


def write_atomic(path: Path, content: bytes | str) -> None:
    """Replace the content of `path` and make its folder. Raises `GolfError` if the disk refuses."""
    data = content.encode() if isinstance(content, str) else content
    # A rename is atomic only within one file system, so the temporary file lies beside `path`.
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise disk_error(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, values: Any) -> None:
    """Replace the content of `path` with `values` as indented JSON. Raises `GolfError` if the disk refuses."""
    write_atomic(path, json.dumps(values, indent=2) + "\n")


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder that is renamed to `path` if the block succeeds and removed if it fails.

    If another process has made `path` in the meantime, its version stays. Raises `GolfError` if the disk refuses.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    except OSError as error:
        raise disk_error(path, error) from error
    try:
        yield unfinished
        unfinished.chmod(0o755)  # mkdtemp lets only the owner in
        unfinished.rename(path)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):  # these two: another process was first
            raise disk_error(path, error) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def disk_error(path: Path, error: OSError) -> GolfError:
    """Return the error for a file that could not be written, with what to do about it."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return GolfError(f"No space left to write {path}: free some or move the folder to another disk.")
    return GolfError(f"{path} cannot be written ({error.strerror}): check the folder's permissions.")
