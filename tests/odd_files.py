"""Files as nobody writes them: damaged, deep, endless, linked, or no files at all."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SECRET = "a secret of another file"  # stands in ../../../secret.json, where the kind "link elsewhere" leads
DEEP = 100_000


def bound_socket(path: Path) -> None:
    """Leave a socket at `path`, as programs do that listen there."""
    # The address of a socket is short, shorter than the path of a test's folder.
    here = Path.cwd()
    os.chdir(path.parent)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)
    os.chdir(here)


def sparse(path: Path, content: bytes = b"") -> None:
    """Write a file of a terabyte that takes no room."""
    with path.open("wb") as file:
        file.write(content)
        file.truncate(1 << 40)


def linked(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


def text(content: str | bytes) -> Callable[[Path], None]:
    return lambda path: (path.write_bytes(content.encode() if isinstance(content, str) else content), None)[1]


FILES: dict[str, Callable[[Path], Any]] = {
    "empty": text(""),
    "zeros": text(bytes(300)),
    "binary": text(bytes(range(256)) * 9),
    "brackets": text("[" * DEEP),
    "closed brackets": text("[" * DEEP + "]" * DEEP),
    "deep object": text('{"state": ' * DEEP + "1" + "}" * DEEP),
    "list": text("[]"),
    "null": text("null"),
    "number": text("17"),
    "string": text('"runs"'),
    "long number": text('{"seed": ' + "9" * 6000 + "}"),
    "latin-1": text('{"name": "Zürich"}'.encode("latin-1")),
    "utf-16": text('{"name": "x"}'.encode("utf-16")),
    "byte order mark": text(b"\xef\xbb\xbf{}"),
    "half a surrogate": text('{"name": "\\ud800", "state": "\\udfff"}'),
    "long line": text('{"note": "' + "x" * 3_000_000),
    "link elsewhere": linked("../../../secret.json"),
    "dangling link": linked("nowhere.json"),
    "loop": lambda path: path.symlink_to(path.name),
    "endless": linked("/dev/zero"),
    "pipe": os.mkfifo,
    "socket": bound_socket,
    "folder": Path.mkdir,
    "terabyte": sparse,
    "terabyte behind a line": lambda path: sparse(path, b'{"event": "train", "step": 1}\n'),
}


@contextmanager
def seconds(limit: int) -> Iterator[None]:
    """Raise an error in a block that hangs."""

    def ring(*_: object) -> None:
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(limit)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
