"""`track.json` of a run folder: under which id the run is mirrored and how far that came."""

from __future__ import annotations

import dataclasses
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from golf.files import write_json
from golf.jobs.track.keys import read_object

RECORDING, OFFLINE, UPLOADED, INCOMPLETE = "recording", "offline", "uploaded", "incomplete"
MOST_NAME_CHARS = 80  # of the 128 that W&B allows an id


@dataclass
class Record:
    """`id` is made once for a folder, so that mirroring it again replaces what was there before."""

    id: str
    state: str = RECORDING
    files: str = ""  # W&B's own, relative to the run folder; `wandb sync` takes them
    url: str = ""
    warning: str = ""  # the one that was shown


def record_path(folder: Path) -> Path:
    return folder / "track.json"


def read_record(folder: Path) -> Record | None:
    """None for a folder that was never mirrored."""
    values = read_object(record_path(folder))
    known = {f.name for f in dataclasses.fields(Record)}
    return Record(**{k: v for k, v in values.items() if k in known}) if values.get("id") else None


def open_record(folder: Path) -> Record:
    """What is there, or a new one, which is not written yet."""
    return read_record(folder) or Record(_new_id(folder))


def write_record(folder: Path, record: Record) -> None:
    write_json(record_path(folder), dataclasses.asdict(record))


def _new_id(folder: Path) -> str:
    """`<variant id>-s<seed>-a<attempt>-<4 hex digits>`: the last keep apart the same run made by two people."""
    seed, _, attempt = folder.name.removeprefix("seed").partition(".")
    parts = [folder.parent.name.rpartition("-")[2], f"s{seed}", f"a{attempt or 1}"]
    if is_sweep(folder) or is_import(folder):
        parts = ["report" if is_sweep(folder) else "import", folder.name[:MOST_NAME_CHARS]]
    return re.sub(r"[^A-Za-z0-9_-]", "_", "-".join([*parts, secrets.token_hex(2)]))


def is_sweep(folder: Path) -> bool:
    """Whether this is the folder of a sweep's record, which is mirrored as a report."""
    return (folder / "sweep.json").is_file()


def is_import(folder: Path) -> bool:
    """Whether this is the folder of somebody else's submission, whose runs are mirrored together."""
    return (folder / "import.json").is_file()


def warning(reason: object, folder: Path) -> str:
    """The one sentence that a run says about W&B."""
    return f"W&B: {reason}. The folder has all of it: `python scripts/sync_wandb.py {folder}` uploads it later."
