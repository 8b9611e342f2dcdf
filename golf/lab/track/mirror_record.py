"""`track.json` of a run folder: the id under which the run is mirrored, and the state of the mirror."""

from __future__ import annotations

import dataclasses
import re
import secrets
import shlex
from dataclasses import dataclass
from pathlib import Path

from golf.files import read_object, write_json

RECORDING, OFFLINE, UPLOADED, INCOMPLETE = "recording", "offline", "uploaded", "incomplete"
MOST_NAME_CHARS = 80  # longest folder name in an id; W&B allows an id of 128 characters


@dataclass
class MirrorRecord:
    """The content of `track.json`."""

    id: str  # made once for a folder, so that mirroring it again replaces the earlier mirror
    state: str = RECORDING
    files: str = ""  # folder of W&B's files, relative to the run folder; `wandb sync` takes it
    url: str = ""
    warning: str = ""  # warning that was printed

    @staticmethod
    def read(folder: Path) -> MirrorRecord | None:
        """Return the record of `folder`; None if it was never mirrored."""
        values = read_object(record_path(folder))
        known = {f.name for f in dataclasses.fields(MirrorRecord)}
        return MirrorRecord(**{k: v for k, v in values.items() if k in known}) if values.get("id") else None

    @staticmethod
    def open(folder: Path) -> MirrorRecord:
        """Return the record of `folder`, or a new one, which is not written yet."""
        return MirrorRecord.read(folder) or MirrorRecord(_new_id(folder))

    def write(self, folder: Path) -> None:
        """Write `track.json`."""
        write_json(record_path(folder), dataclasses.asdict(self))


def record_path(folder: Path) -> Path:
    """Return the path of `track.json`."""
    return folder / "track.json"


def _new_id(folder: Path) -> str:
    """Return `<variant id>-s<seed>-a<attempt>-<4 hex digits>`. The digits keep apart the same run of two people."""
    seed, _, attempt = folder.name.removeprefix("seed").partition(".")
    parts = [folder.parent.name.rpartition("-")[2], f"s{seed}", f"a{attempt or 1}"]
    if is_sweep(folder):
        parts = ["report", folder.name[:MOST_NAME_CHARS]]
    # W&B refuses some special characters in an id.
    return re.sub(r"[^A-Za-z0-9_-]", "_", "-".join([*parts, secrets.token_hex(2)]))


def is_sweep(folder: Path) -> bool:
    """Tell whether `folder` is that of a sweep's record, which is mirrored as a report."""
    return (folder / "sweep.json").is_file()


def warning(reason: object, folder: Path) -> str:
    """Return the warning that a run prints when its mirror failed for `reason`."""
    return f"W&B: {reason}. The folder has all of it: `golf sync {shlex.quote(str(folder))}` uploads it later."
