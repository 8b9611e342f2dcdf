"""The exit status of a program of golf, whatever ended it, with a sentence for each error that a user can mend."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

from golf.errors import GolfError, without_environment
from golf.files import DISK_REFUSES
from golf.paths import ROOT
from golf.words import print_in_any_encoding

OWN_PACKAGES = ("golf", "hydra_plugins", "bench", "scripts")
EXIT_NOT_OK, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130
EXIT_NOT_BETTER, EXIT_UNDECIDED = 10, 11  # of `golf report --exit`


def exit_status(run: Callable[[], int]) -> int:
    """Return the exit status of a command: what `run` returns, or what its error or Ctrl-C stands for."""
    print_in_any_encoding()
    try:
        status = _status_of(run)
        # Flushed here, so that a reader who has gone away is noticed below.
        sys.stdout.flush()
    except GolfError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_USAGE
    except ModuleNotFoundError as error:
        package, *rest = (error.name or "").split(".")
        # Whoever deletes a product keeps what does not need it.
        if package == "golf" and rest and not (ROOT / "golf" / rest[0]).exists():
            print(f"error: This needs golf/{rest[0]}, which is not here: check it out again.", file=sys.stderr)
            return EXIT_USAGE
        # A module of golf itself that is missing is a fault in golf, whose traceback is needed.
        if package in OWN_PACKAGES:
            raise
        print(f"error: {without_environment(error)}", file=sys.stderr)
        return EXIT_USAGE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader, such as `head`, has what it wants.
        _drop_output()
        return 0
    except OSError as error:
        # Any command may meet a file or folder of somebody else, or print onto a full disk.
        if error.errno not in DISK_REFUSES:
            raise
        what = error.filename or "The output"
        print(f"error: {what} cannot be opened or written ({error.strerror}).", file=sys.stderr)
        if error.filename is None:
            _drop_output()
        return EXIT_USAGE
    return status


def _drop_output() -> None:
    """Send what is still buffered nowhere: Python would complain again when it flushes at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _status_of(run: Callable[[], int]) -> int:
    """Return the status that `run` returns or exits with, as argparse does after `--help` and after a mistake.

    Raises `KeyboardInterrupt` after Ctrl-C, whatever error became of it: Hydra and half-done imports raise their own.
    """
    interrupts: list[int] = []

    def interrupt(number: int, frame: object) -> NoReturn:
        interrupts.append(number)
        raise KeyboardInterrupt

    # A process in the background ignores the signal, and a run of the library may have a handler of its own.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    try:
        return run()
    except Exception:
        if interrupts:
            raise KeyboardInterrupt from None
        raise
    except SystemExit as end:
        # Python itself prints a text that a program exits with.
        if isinstance(end.code, str):
            raise
        return end.code or 0
