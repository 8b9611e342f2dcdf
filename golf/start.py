"""Preparation of the process of `golf/train.py` before any other import: paths, threads, Ctrl-C, `--help`."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).resolve().parents[1]


def prepare(arguments: Sequence[str]) -> None:
    """Let this process run the program with `arguments`. It ends here if they ask for help."""
    # Run as a script, Python puts golf/ itself on the path, where its modules would pass for top-level ones.
    if Path(sys.path[0] or ".").resolve() == ROOT / "golf":
        sys.path[0] = str(ROOT)
    sys.excepthook = _say
    set_up()
    # Help is answered before anything that takes time to import.
    if {"-h", "--help"} & set(arguments):
        _help()


def set_up() -> None:
    """Let this process start runs, before torch is imported."""
    # Started as a module from elsewhere, the root may be missing. Hydra looks for hydra_plugins/ along the path.
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))
    # Idle OpenMP threads go to sleep after some 30 µs instead of milliseconds: beside another busy process a training
    # step otherwise takes up to 20 times as long (docs/benchmarks.md). Read when torch is imported.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")


def _say(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print what ends this process while it imports: nothing for Ctrl-C, a sentence for a package that is missing."""
    # The process still ends by the signal.
    if isinstance(error, KeyboardInterrupt):
        return
    if isinstance(error, ModuleNotFoundError):
        from golf.errors import without_environment
        from golf.exits import OWN_PACKAGES

        # A module of golf itself that is missing is a fault in golf, whose traceback is needed.
        if (error.name or "").partition(".")[0] not in OWN_PACKAGES:
            print(f"error: {without_environment(error)}", file=sys.stderr)
            return
    sys.__excepthook__(kind, error, trace)


def _help() -> None:
    from golf.settings.usage import usage
    from golf.words import print_in_any_encoding

    print_in_any_encoding()
    # A reader such as `head` may close the pipe before all is written.
    with contextlib.suppress(BrokenPipeError):
        print(usage(), flush=True)
    # An ordinary exit would try again to write what the reader did not want.
    os._exit(0)
