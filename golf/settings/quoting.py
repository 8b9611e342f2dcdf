"""Values as Hydra's grammar of overrides reads them."""

from __future__ import annotations

import re

# Hydra reads these as one string or number. Its words are ASCII, so `\w` would let too much through.
PLAIN = re.compile(r"[A-Za-z0-9_./+:-]+")


def quoted(value: str) -> str:
    """Return `value`, in quotes if Hydra's grammar would not read it as one string, as it is with spaces or umlauts."""
    if PLAIN.fullmatch(value):
        return value
    # A backslash is doubled only where a quote follows it, which is where the grammar reads it as an escape.
    escaped = re.sub(r'(?<!\\)(\\*)"', lambda match: match[1] * 2 + r"\"", value)
    return '"' + re.sub(r"(?<!\\)\\+$", lambda match: match[0] * 2, escaped) + '"'
