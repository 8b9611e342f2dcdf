"""Whole files through a pipe, as a tar that both ends write and read while it flows."""

from __future__ import annotations

import contextlib
import os
import tarfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, BinaryIO

from golf.files import open_plain, write_stream

MTIME = "golf.mtime_ns"  # tar's own time is a float, which has no nanoseconds
END = "end of the parcel"  # name of the last member: tar takes a stream that was cut between two files for a whole one
PART_BYTES = 1 << 20


def pack(out: IO[bytes], files: Iterable[tuple[str, Path | BinaryIO]]) -> None:
    """Write `files`, each with the name that it gets at the other end. Those that are gone meanwhile are left out.

    One that is open already is written as it was when it was opened, though it may have been replaced or removed.
    """
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for name, source in files:
            with (
                contextlib.suppress(FileNotFoundError),
                open_plain(source) if isinstance(source, Path) else source as file,
            ):
                about = os.fstat(file.fileno())
                member = tarfile.TarInfo(name)
                # What a log gains from here on comes with the next parcel.
                member.size, member.pax_headers = about.st_size, {MTIME: str(about.st_mtime_ns)}
                tar.addfile(member, file)
        tar.addfile(tarfile.TarInfo(END))


def unpack(stream: IO[bytes], place: Callable[[str], Path | None]) -> list[str]:
    """Write the files of a parcel, each at once when all of it is here, and return their names.

    `place` says where a name goes, None for nowhere. Raises `tarfile.TarError` for a parcel that was cut off, and
    `GolfError` if the disk refuses; the files before stay.
    """
    names: list[str] = []
    with tarfile.open(fileobj=stream, mode="r|") as tar:
        for member in tar:
            if member.name == END:
                return names
            content, path = tar.extractfile(member), place(member.name)
            if content is not None and path is not None:
                write_stream(path, _parts(content), int(member.pax_headers[MTIME]))
                names.append(member.name)
    raise tarfile.ReadError("the stream ended before its last file")


def _parts(content: object) -> Iterator[bytes]:
    return iter(lambda: content.read(PART_BYTES), b"")  # type: ignore[attr-defined]


def stamps(files: Iterable[Path], root: Path) -> dict[str, list[int]]:
    """Return bytes and time of change in nanoseconds of each of `files`, by its path below `root`."""
    found: dict[str, list[int]] = {}
    for path in files:
        with contextlib.suppress(OSError):
            found[str(path.relative_to(root))] = stamp(path.stat())
    return found


def stamp(about: os.stat_result) -> list[int]:
    """Return bytes and time of change in nanoseconds."""
    return [about.st_size, about.st_mtime_ns]
