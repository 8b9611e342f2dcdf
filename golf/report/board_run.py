"""Plain values for the board's page of one run, its files, and the note that a reader writes there."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from golf.errors import GolfError
from golf.files import write_atomic
from golf.run.folder import RunFolder
from golf.run.identity import flat
from golf.words import as_override, counted

MOST_NOTE_BYTES = 10_000
MOST_FILE_BYTES = 50_000_000  # larger files are listed and not sent
LOG_BYTES = 6_000  # end of a log that the page shows
LOGS = ("output.log", "train.log")  # the first one that exists is shown
BINARY = "application/octet-stream"
KINDS = {".png": "image/png", ".golf": BINARY, ".safetensors": BINARY}  # everything else is shown as text


def read_plain(path: Path, last_bytes: int | None = None) -> bytes:
    """Return the content of a file or its last bytes; nothing for a link, which could lead out of the runs root."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            if last_bytes:
                file.seek(max(0, file.seek(0, os.SEEK_END) - last_bytes))
            return file.read()
    except OSError:
        return b""


def remarks_of(folder: RunFolder) -> dict[str, Any]:
    """Return the run's note, as written on the board or else by `note=`, and its tags."""
    values = _json(folder.config)
    tags = values.get("tags")
    own = folder.note.is_file()
    note = read_plain(folder.note).decode(errors="replace") if own else str(values.get("note") or "")
    return {"note": note, "tags": [str(tag) for tag in tags] if isinstance(tags, list) else []}


def write_note(folder: RunFolder, content: bytes) -> None:
    """Write a note into the run's folder. Raises `GolfError` for a text that is too long or no text."""
    if len(content) > MOST_NOTE_BYTES:
        raise GolfError(f"A note has at most {MOST_NOTE_BYTES:,} bytes; this one has {len(content):,}.")
    try:
        write_atomic(folder.note, content.decode())
    except UnicodeDecodeError as error:
        raise GolfError(f"A note is text in UTF-8 ({error}).") from error


def run_values(folder: RunFolder) -> dict[str, Any]:
    """Return settings, command, commit, machine, warnings, the end of the log and the files of a run."""
    result, environment, log = _json(folder.result), _json(folder.path / "environment.json"), _log(folder)
    git = environment.get("git") or {}
    commit = f"{git.get('commit', '')}{' with changes' if git.get('dirty') else ''}"
    made = {
        "command": " ".join(map(str, environment.get("command") or [])),
        "commit": commit,
        "host": result.get("host", ""),
        "started_at": environment.get("started_at"),
        "python": environment.get("python", ""),
        "torch": (environment.get("packages") or {}).get("torch", ""),
    }
    return {
        "made": made,
        "settings": {key: as_override(value) for key, value in sorted(flat(_json(folder.config)))},
        "result": {key: value for key, value in flat(result) if isinstance(value, int | float | str)},
        "warnings": [str(sentence) for sentence in result.get("warnings") or []],
        "log": log,
        "files": [[name, size, size <= MOST_FILE_BYTES] for name, (_, size) in files_of(folder).items()],
        "folder": str(folder.path),
    }


def files_of(folder: RunFolder) -> dict[str, tuple[Path, int]]:
    """Return path and bytes of the run's files by name, without links and hidden files."""
    paths = sorted(path for path in folder.path.rglob("*") if path.is_file() and not path.is_symlink())
    names = [path.relative_to(folder.path) for path in paths]
    plain = [name for name in names if not any(part.startswith(".") for part in name.parts)]
    return {str(name): (folder.path / name, (folder.path / name).stat().st_size) for name in plain}


def file_of(folder: RunFolder, name: str) -> tuple[bytes, str]:
    """Return content and kind of a listed file. Raises `GolfError` for any other name."""
    files = files_of(folder)
    # Names are looked up and never joined to a path, so that no request can name another file.
    if name not in files:
        raise GolfError(f"The run has no file {name}.")
    path, size = files[name]
    if size > MOST_FILE_BYTES:
        raise GolfError(f"{name} has {size:,} bytes, too many to send: it is {path}.")
    return read_plain(path), KINDS.get(path.suffix, "text/plain")


def artifact_values(folder: RunFolder) -> dict[str, Any]:
    """Return the tensor classes of the run's artifact with their formats, parameters and bytes in the file."""
    # It imports torch, which takes longer than the rest of the board's start.
    from golf.artifact.inspection import inspect_file, totals_by_class

    artifact = inspect_file(folder.artifact)
    columns = ("tensor_class", "format", "params", "coded_bytes")
    classes = [{key: getattr(total, key) for key in columns} for total in totals_by_class(artifact.tensors)]
    return {"about": f"{artifact.layout}, {counted(artifact.file_bytes, 'byte')}", "classes": classes}


def _log(folder: RunFolder) -> str:
    end = next((text for name in LOGS if (text := read_plain(folder.path / name, LOG_BYTES))), b"")
    # The first line may have lost its begin.
    return (end.partition(b"\n")[2] if len(end) == LOG_BYTES else end).decode(errors="replace")


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(read_plain(path))
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
