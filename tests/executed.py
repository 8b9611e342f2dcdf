"""Run a program of golf and note the files of the package whose functions it calls: `executed.py NOTES PROGRAM …`.

The notes are JSON: the files that the whole process calls, and those that it calls within `run_rank`.
"""

import inspect
import json
import runpy
import sys
import threading
from pathlib import Path
from types import FrameType

PACKAGE = f"{Path(__file__).resolve().parents[1] / 'golf'}/"
called: dict[str, set[str]] = {"run": set(), "rank": set()}
inside = ["run"]  # grows by `rank` while a rank runs


def note(frame: FrameType, event: str, _: object) -> None:
    code = frame.f_code
    # Modules and classes are executed when they are imported.
    if not code.co_filename.startswith(PACKAGE) or not code.co_flags & inspect.CO_OPTIMIZED:
        return
    if code.co_name == "run_rank":
        inside[:] = ["run", "rank"] if event == "call" else ["run"]
    for part in inside if event == "call" else ():
        called[part].add(code.co_filename)


if __name__ == "__main__":
    notes, sys.argv = sys.argv[1], sys.argv[2:]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    sys.setprofile(note)
    threading.setprofile(note)
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    finally:
        sys.setprofile(None)
        Path(notes).write_text(json.dumps({part: sorted(files) for part, files in called.items()}))
