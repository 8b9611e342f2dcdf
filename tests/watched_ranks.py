"""Watch the ranks of a real run: their clocks run at different speeds, and what they write and ask for is noted.

`watched_environment` lets every process begin with `watch`. A rank notes the paths that it writes and the collectives
that it calls, with dtypes and shapes. torch's own check of collectives (`TORCH_DISTRIBUTED_DEBUG=DETAIL`) ends these
runs with a segmentation fault.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

VARIABLE = "GOLF_TEST_WATCHED_RANKS"  # folder of the notes
CLOCKS = ("perf_counter", "monotonic", "time")
COLLECTIVES = ("all_reduce", "all_gather_object", "broadcast_object_list")
FASTER = 1.7  # a second of the first rank is so many of the next one
WRITES = os.O_WRONLY | os.O_RDWR


def watch() -> None:
    """Let this process, if it is a rank, have a clock of its own, and note what it writes."""
    rank = os.environ.get("RANK")
    if rank is None:
        return
    for name in CLOCKS:
        setattr(time, name, _faster(getattr(time, name), FASTER ** int(rank)))
    notes = os.open(Path(os.environ[VARIABLE]) / rank, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(*words: Any) -> None:
        os.write(notes, (" ".join(map(str, words)) + "\n").encode())

    def event(name: str, args: tuple[Any, ...]) -> None:
        if name == "open" and isinstance(args[0], str) and args[2] and args[2] & WRITES:
            note("writes", args[0])
        elif name in ("os.rename", "os.link"):
            note("writes", args[1])
        elif name in ("os.remove", "os.rmdir"):
            note("writes", args[0])

    sys.addaudithook(event)
    import torch.distributed as dist

    for name in COLLECTIVES:
        setattr(dist, name, _noted(name, getattr(dist, name), note))


def _noted(name: str, collective: Callable[..., Any], note: Callable[..., None]) -> Callable[..., Any]:
    def called(first: Any, *args: Any, **kwargs: Any) -> Any:
        note("asks", name, getattr(first, "dtype", ""), list(getattr(first, "shape", [])), kwargs.get("op", ""))
        return collective(first, *args, **kwargs)

    return called


def _faster(clock: Callable[[], float], factor: float) -> Callable[[], float]:
    start = clock()
    return lambda: start + (clock() - start) * factor


def watched_environment(folder: Path) -> dict[str, str]:
    """Return the variables under which ranks are watched; `written` reads their notes in `folder`."""
    startup, notes = folder / "startup", folder / "notes"
    startup.mkdir()
    notes.mkdir()
    code = f"import os\nif {VARIABLE!r} in os.environ:\n    import watched_ranks\n    watched_ranks.watch()\n"
    (startup / "sitecustomize.py").write_text(code)
    (startup / "watched_ranks.py").write_text(Path(__file__).read_text())
    return {"PYTHONPATH": str(startup), VARIABLE: str(notes)}


def written(folder: Path, rank: int, below: Path) -> set[str]:
    """Return the paths below `below` that a rank wrote or removed."""
    paths = {Path(line) for line in _noted_by(folder, rank, "writes")}
    return {str(path.relative_to(below)) for path in paths if path.is_relative_to(below)}


def collectives(folder: Path, rank: int) -> list[str]:
    """Return the collectives that a rank called, in order."""
    return _noted_by(folder, rank, "asks")


def _noted_by(folder: Path, rank: int, what: str) -> list[str]:
    lines = (folder / "notes" / str(rank)).read_text().splitlines()
    return [line.removeprefix(f"{what} ") for line in lines if line.startswith(f"{what} ")]
