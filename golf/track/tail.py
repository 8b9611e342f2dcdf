"""Following a growing JSON-lines file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class Tail:
    """Each line of `path` once, as soon as it is complete."""

    def __init__(self, path: Path):
        self.path, self._read = path, 0

    def new_events(self) -> list[dict[str, Any]]:
        """The objects of the lines since the last call; a line that is not JSON is left out."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._read)
                complete = file.read().rpartition(b"\n")[0]
        except FileNotFoundError:
            return []
        self._read += len(complete) + bool(complete)
        events = []
        for line in complete.splitlines():
            try:
                events.append(json.loads(line))
            except ValueError:
                continue
        return [event for event in events if isinstance(event, dict) and "event" in event]
