"""Writing files so that a reader sees the old content or the new, never half of it."""

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
    """Replace `path` by `content` through a temporary file beside it. A full disk is a `GolfError`."""
    data = content.encode() if isinstance(content, str) else content
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
    """`values` as indented JSON, atomically."""
    write_atomic(path, json.dumps(values, indent=2) + "\n")


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """An empty folder that takes the name `path` when the block ends well, and is removed otherwise.

    If another process made `path` meanwhile, its version stays.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    except OSError as error:
        raise disk_error(path, error) from error
    try:
        yield unfinished
        unfinished.chmod(0o755)
        unfinished.rename(path)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise disk_error(path, error) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def disk_error(path: Path, error: OSError) -> GolfError:
    """The sentence for a file that could not be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return GolfError(f"No space left to write {path}: free some or move the folder to another disk.")
    return GolfError(f"{path} cannot be written ({error.strerror}): check the folder's permissions.")
