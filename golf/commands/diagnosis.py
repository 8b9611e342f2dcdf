"""The result of one check of `golf doctor`, and the helpers that its checks share."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass

OK, NOTE, PROBLEM = "ok", "note", "problem"
COMMAND_SECONDS = 4.0  # the doctor answers within ten seconds, even if a driver or a controller hangs


@dataclass(frozen=True)
class Diagnosis:
    """State of one part of the machine, and the advice for it."""

    state: str  # ok, note or problem; a problem stops or slows a default run
    subject: str
    finding: str
    advice: str = ""

    @property
    def line(self) -> str:
        """Text of one line, in columns."""
        said = f"{self.finding}: {self.advice}" if self.advice else self.finding
        return f"{self.state:8} {self.subject:16} {said}"


def examine(subject: str, check: Callable[[], Diagnosis]) -> Diagnosis:
    """Return what `check` finds; a note if the machine is so strange that the check itself fails."""
    try:
        return check()
    except (Exception, SystemExit) as error:
        return Diagnosis(NOTE, subject, f"cannot be checked ({type(error).__name__}: {first_line(str(error))})")


def first_line(text: str) -> str:
    """Return the first line of `text` that is not empty."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def output_of(*command: str) -> tuple[int, str]:
    """Return exit status and output of a command; -1 and the reason if it cannot be started or does not end."""
    try:
        done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", timeout=COMMAND_SECONDS)
    except subprocess.TimeoutExpired:
        return -1, f"{command[0]} did not answer within {COMMAND_SECONDS:g} s"
    except OSError as error:
        return -1, f"{command[0]} cannot be started ({error.strerror})"
    return done.returncode, done.stdout if done.returncode == 0 else done.stdout + done.stderr
