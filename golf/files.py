"""Atomic writing of files and folders: a reader sees the old content or the new one, never a part."""

from __future__ import annotations

import contextlib
import errno
import glob
import json
import os
import platform
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from golf.errors import GolfError

# What reading a damaged file raises, or its content where it is used.
DAMAGED = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError)
MOST_READ_BYTES = 1 << 28  # of a file that is read whole; the largest of golf's own have some megabytes
NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)  # errors of file systems without hard links


def write_atomic(path: Path, content: bytes | str) -> None:
    """Replace the content of `path` and make its folder. Raises `GolfError` if the disk refuses.

    Temporary files that killed writers of `path` left on this machine are removed.
    """
    data = content.encode() if isinstance(content, str) else content
    with _written_beside(path, [data]) as temporary:
        temporary.replace(path)


def write_stream(path: Path, parts: Iterable[bytes], mtime_ns: int) -> None:
    """Replace the content of `path` with all `parts`, once the last has come, and set its time of change.

    Raises `GolfError` if the disk refuses, and whatever `parts` raises; `path` then stays as it is.
    """
    with _written_beside(path, parts) as temporary:
        os.utime(temporary, ns=(mtime_ns, mtime_ns))
        temporary.replace(path)


def write_new(path: Path, content: str) -> bool:
    """Write `path` unless it exists, and make its folder. Return False if it exists.

    If several writers call this at once, exactly one gets True. Raises `GolfError` if the disk refuses.
    """
    with _written_beside(path, [content.encode()]) as temporary:
        try:
            # Unlike a rename, a link never replaces a file that another process has written in the meantime.
            os.link(temporary, path)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            # Without links a check and a rename have to do: another writer may come between the two.
            if path.exists():
                return False
            temporary.replace(path)
    return True


@contextlib.contextmanager
def _written_beside(path: Path, parts: Iterable[bytes]) -> Iterator[Path]:
    """Yield a temporary file with `parts` in the folder of `path`, and remove it at the end of the block.

    Raises `GolfError` for an `OSError` here or in the block.
    """
    # A rename is atomic only within one file system, so the temporary file lies beside `path`. Machines may share that
    # file system, and a process id means something on its own machine only.
    prefix = f".{path.name}.{platform.node()}."
    temporary = path.parent / f"{prefix}{os.getpid()}"
    try:
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            _remove_leftovers(path.parent, prefix)
            with temporary.open("wb") as file:
                for part in parts:
                    file.write(part)
                file.flush()
                # Without it a power failure after the rename could leave the new name with no content.
                os.fsync(file.fileno())
            yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _remove_leftovers(folder: Path, prefix: str) -> None:
    """Remove the files `<prefix><process id>` in `folder` whose process has ended."""
    for left in folder.glob(f"{glob.escape(prefix)}*"):
        process = left.name.removeprefix(prefix)
        if process.isdecimal() and not _is_running(int(process)):
            # Two writers may find the same file, and another user's file may be protected.
            with contextlib.suppress(OSError):
                left.unlink()


def _is_running(process: int) -> bool:
    """Tell whether this machine has a process with this id."""
    # Signal 0 only checks that the process exists. One of another user may not be signalled, but it runs.
    try:
        with contextlib.suppress(PermissionError):
            os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    return True


def write_json(path: Path, values: Any) -> None:
    """Replace the content of `path` with `values` as indented JSON. Raises `GolfError` if the disk refuses."""
    write_atomic(path, json.dumps(values, indent=2) + "\n")


def append_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Append each of `lines` to a file as a line of JSON. Raises `GolfError` if the disk refuses."""
    # In one write, so that processes that append at the same time do not mix their lines.
    with disk_errors(path), path.open("ab", buffering=0) as file:
        file.write("".join(json.dumps(line) + "\n" for line in lines).encode())


def open_plain(path: Path) -> BinaryIO:
    """Open a file for reading.

    Raises `OSError` for a link, which could lead anywhere, and for a pipe or device, where a reader would hang.
    """
    if path.is_symlink():
        raise OSError(errno.ELOOP, "it is a link, and links are not followed here", str(path))
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is no plain file", str(path))
    return file


def read_plain(path: Path, last_bytes: int = 0) -> bytes:
    """Return the content of a file, or its last bytes.

    Raises `OSError` as `open_plain` does, and for a file that is too large to be one of golf's.
    """
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        if last_bytes:
            file.seek(max(0, size - last_bytes))
        elif size > MOST_READ_BYTES:
            raise OSError(errno.EFBIG, f"it has {size:,} bytes, more than {MOST_READ_BYTES:,}", str(path))
        return file.read(last_bytes or MOST_READ_BYTES)


def parsed(content: bytes | str) -> Any:
    """Return the value of a JSON text. Raises `ValueError` for any other text, however deep it is nested."""
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_json(path: Path) -> Any:
    """Return the value of a JSON file. Raises `OSError` and `ValueError` as `read_plain` and `parsed` do."""
    return parsed(read_plain(path))


def read_object(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; empty if there is none or it cannot be read."""
    try:
        values = read_json(path)
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file of JSON lines, none without the file. A line that was cut off is left out."""
    with contextlib.suppress(OSError):
        for line in read_plain(path).splitlines():
            with contextlib.suppress(ValueError):
                values = parsed(line)
                if isinstance(values, dict):
                    yield values


def sync_folder(folder: Path) -> None:
    """Let the names in `folder` be on disk: a power failure could otherwise undo a rename. Not all systems can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder that is renamed to `path` if the block succeeds and removed if it fails.

    If another process has made `path` in the meantime, its version stays. Raises `GolfError` if the disk refuses.
    """
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        # A folder can be renamed within one file system only, so it is made beside its place.
        unfinished = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        yield unfinished
        # mkdtemp lets only the owner in, and others may have to read the folder.
        unfinished.chmod(0o755)
        unfinished.rename(path)
    except OSError as error:
        # These two mean that another process was first: its folder stays.
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise disk_error(path, error) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def refuse_unwritable(path: Path) -> None:
    """Raise `GolfError` if `new_folder` could not make `path`, before the work whose results it is for."""
    try:
        existing = next(parent for parent in path.absolute().parents if parent.exists())
        tempfile.TemporaryDirectory(dir=existing, prefix=f".{path.name}.").cleanup()
    except OSError as error:
        raise disk_error(path, error) from error


def shared_folder(folder: Path) -> None:
    """Make `folder`, with its parents, for everybody who may write into the folder that it is in."""
    if not folder.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):
            folder.chmod(folder.parent.stat().st_mode & 0o7777)


ROOM = "free some or move the folder to another disk"
# What the user can do about an error that the system gives for a file.
CURES = {
    errno.ENOSPC: ROOM,
    errno.EDQUOT: f"your quota of disk space is used up: {ROOM}",
    errno.EFBIG: "a file may not be that large here: raise the limit of `ulimit -f`, or choose another disk",
    errno.EACCES: "check the folder's permissions",
    errno.EPERM: "check the folder's permissions",
    errno.EROFS: "choose a place on another disk",
    errno.ENOTDIR: "a part of its path is a file: choose another place",
    errno.EISDIR: "it is a folder: give the name of a file",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EIO: "the disk or its connection fails: choose another disk",
}
DISK_REFUSES = tuple(CURES)  # errors that the user can mend


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Raise the `GolfError` about `path` in place of an `OSError` in the block."""
    try:
        yield
    except OSError as error:
        raise disk_error(path, error) from error


def disk_error(path: Path, error: OSError) -> GolfError:
    """Return the error for a file that could not be written, with what to do about it."""
    # Errors of copied trees have no number, only those of all files as text.
    number = error.errno or next((n for n in CURES if os.strerror(n) in str(error)), 0)
    if number == errno.ENOSPC:
        return GolfError(f"No space left to write {path}: {ROOM}.")
    return GolfError(
        f"{path} cannot be written ({error.strerror or error}): {CURES.get(number, 'choose another place')}."
    )
