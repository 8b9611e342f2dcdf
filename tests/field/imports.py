"""Small logs and folders for the tests of imports."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from golf.challenge import VALIDATION_BYTES
from golf.field.folder_reader import ForeignFolder
from golf.field.import_store import import_folders
from golf.lab.report.imported_rows import find_imported
from golf.lab.report.rows import RunRow

TOKENS = 62_021_632


def log(seed: int = 7, bpb: float = 1.2, **changes: Any) -> str:
    """A log of the oldest dialect; loss and bits per byte belong together unless `loss` says otherwise."""
    at = {"loss": bpb * math.log(2) * VALIDATION_BYTES / TOKENS, "tokens": TOKENS, "pre": bpb - 0.007}
    at |= {"seconds": 600.0, "steps": 13_000, "shards": 80, "model": 15_800_000, "code": 50_000}
    at |= {"tag": "final_int8_zlib_roundtrip"} | changes
    time = f"train_time:{at['seconds'] * 1000:.0f}ms"
    total = at.get("total", at["model"] + at["code"])
    return f"""train_loader:dataset:fineweb10B_sp1024 train_shards:{at["shards"]}
val_loader:shards pattern=x tokens:{at["tokens"]}
seed:{seed}
step:{at["steps"]}/20000 val_loss:2.0000 val_bpb:{at["pre"]:.4f} {time} step_avg:46.15ms
stopping_early: wallclock_cap {time} step:{at["steps"]}/20000
Serialized model: 67224983 bytes
Code size: {at["code"]} bytes
Serialized model int8+zlib: {at["model"]} bytes
Total submission size int8+zlib: {total} bytes
{at["tag"]} val_loss:{at["loss"]:.4f} val_bpb:{bpb:.4f} eval_time:{at.get("eval_ms", 1400)}ms
{at["tag"]}_exact val_loss:{at["loss"]:.8f} val_bpb:{bpb:.8f}
"""


def imported(
    folder: Path, logs: dict[str, str], claims: dict[str, Any] | None = None, readme: str = ""
) -> ForeignFolder:
    folder.mkdir(exist_ok=True)
    for name, text in logs.items():
        (folder / name).write_text(text)
    if claims is not None:
        (folder / "submission.json").write_text(json.dumps(claims))
    if readme:
        (folder / "README.md").write_text(readme)
    (found,) = import_folders([folder])
    return found


def imported_rows(runs: Path) -> list[RunRow]:
    """Return a row for every run that was imported."""
    return [row for folder in sorted((runs / "imported").iterdir()) for row in find_imported(folder.name, runs)]


def faults(found: ForeignFolder) -> list[str]:
    return [*found.faults, *(fault for run in found.runs for fault in run.faults)]
