"""Values as Hydra's grammar of overrides reads them, and commands as a shell does."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

# Hydra reads these as one string or number. Its words are ASCII, so `\w` would let too much through.
PLAIN = re.compile(r"[A-Za-z0-9_./+:-]+")
ADDED_BY_SUBMIT = re.compile(r"-m$|hydra/(launcher|sweeper)=golf")


def quoted(value: str) -> str:
    """Return `value`, in quotes if Hydra's grammar would not read it as one string, as it is with spaces or umlauts."""
    if PLAIN.fullmatch(value):
        return value
    # A backslash is doubled only where a quote follows it, which is where the grammar reads it as an escape.
    escaped = re.sub(r'(?<!\\)(\\*)"', lambda match: match[1] * 2 + r"\"", value)
    return '"' + re.sub(r"(?<!\\)\\+$", lambda match: match[0] * 2, escaped) + '"'


def typed(command: Sequence[str]) -> str:
    """Return a recorded command as it can be pasted into a shell: quoted, with the words of the program that ran.

    `golf submit` adds words to those that it was given, which it would not take.
    """
    words = [str(word) for word in command]
    program, rest = " ".join(words[:1]), words[1:]
    if program == "golf submit":
        rest = [word for word in rest if not ADDED_BY_SUBMIT.match(word)]
    starts = program.split() if program.startswith("golf ") else [program]
    # The file is not executable.
    starts = ["python", program] if program.endswith(".py") else starts
    return shlex.join([*starts, *rest]) if program else ""
