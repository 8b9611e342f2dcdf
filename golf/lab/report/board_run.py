"""Plain values for the board's page of one run, its files, and the note that a reader writes there."""

from __future__ import annotations

import hashlib
from operator import itemgetter
from pathlib import Path
from typing import Any

from golf.errors import GolfError
from golf.files import read_object, read_plain, write_atomic
from golf.run.folder import RunFolder
from golf.run.identity import flat
from golf.settings.quoting import typed
from golf.words import as_override, counted

MOST_NOTE_BYTES = 10_000
MOST_FILE_BYTES = 50_000_000  # larger files are listed and not sent
LOG_BYTES = 6_000  # end of a log that the page shows
LOGS = ("output.log", "train.log")  # the first one that exists is shown
BINARY = "application/octet-stream"
KINDS = {".png": "image/png", ".golf": BINARY, ".safetensors": BINARY}  # everything else is shown as text


def remarks_of(folder: RunFolder) -> dict[str, Any]:
    """Return the run's note, as written on the board or else by `note=`, and its tags."""
    values = read_object(folder.config)
    tags = values.get("tags")
    try:
        note = read_plain(folder.note).decode(errors="replace")
    except FileNotFoundError:
        note = str(values.get("note") or "")
    except OSError as error:
        note = f"(note.txt cannot be read: {error.strerror})"
    return {"note": note, "note_id": note_id(note), "tags": [str(tag) for tag in _list(tags)]}


def note_id(note: str) -> str:
    """Return a short hash by which a page says which note it has shown."""
    return hashlib.sha256(note.encode(errors="replace")).hexdigest()[:12]


def write_note(folder: RunFolder, content: bytes, seen: str) -> None:
    """Write a note into the run's folder.

    Raises `GolfError` for a text that is too long or no text, and if the note there is not the one of the id `seen`.
    """
    if (there := remarks_of(folder))["note_id"] != seen:
        raise GolfError(f"the note is another one meanwhile, {there['note']!r}; save once more to replace it.")
    if len(content) > MOST_NOTE_BYTES:
        raise GolfError(f"A note has at most {MOST_NOTE_BYTES:,} bytes; this one has {len(content):,}.")
    try:
        write_atomic(folder.note, content.decode())
    except UnicodeDecodeError as error:
        raise GolfError(f"A note is text in UTF-8 ({error}).") from error


def run_values(folder: RunFolder) -> dict[str, Any]:
    """Return settings, command, commit, machine, warnings, the end of the log and the files of a run."""
    result, environment, log = read_object(folder.result), read_object(folder.path / "environment.json"), _log(folder)
    settings = flat(read_object(folder.config))
    git, packages = (_dict(environment.get(key)) for key in ("git", "packages"))
    commit = f"{git.get('commit', '')}{' with changes' if git.get('dirty') else ''}"
    made = {
        "command": typed(_list(environment.get("command"))),
        "commit": commit,
        "host": result.get("host", ""),
        "started_at": environment.get("started_at"),
        "python": environment.get("python", ""),
        "torch": packages.get("torch", ""),
    }
    return {
        "made": made,
        "settings": {key: as_override(value) for key, value in sorted(settings, key=itemgetter(0))},
        "result": {key: value for key, value in flat(result) if isinstance(value, int | float | str)},
        "warnings": [str(sentence) for sentence in _list(result.get("warnings"))],
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
    try:
        return read_plain(path), KINDS.get(path.suffix, "text/plain")
    except OSError as error:
        raise GolfError(f"{name} cannot be read ({error.strerror}).") from error


def artifact_values(folder: RunFolder) -> dict[str, Any]:
    """Return the tensor classes of the run's artifact with their formats, parameters and bytes in the file."""
    # It imports torch, which takes longer than the rest of the board's start.
    from golf.lab.artifacts.inspection import inspect_file, totals_by_class

    artifact = inspect_file(folder.artifact)
    columns = ("tensor_class", "format", "params", "coded_bytes")
    classes = [{key: getattr(total, key) for key in columns} for total in totals_by_class(artifact.tensors)]
    return {"about": f"{artifact.layout}, {counted(artifact.file_bytes, 'byte')}", "classes": classes}


def _log(folder: RunFolder) -> str:
    end = next(filter(None, (_end(folder.path / name) for name in LOGS)), b"")
    # The first line may have lost its begin.
    return (end.partition(b"\n")[2] if len(end) == LOG_BYTES else end).decode(errors="replace")


def _end(path: Path) -> bytes:
    """Return the last bytes of a log; nothing if it cannot be read."""
    try:
        return read_plain(path, LOG_BYTES)
    except OSError:
        return b""


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
