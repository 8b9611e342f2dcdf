"""Progress display: a bar on a terminal, plain lines elsewhere, nothing on other ranks than the first."""

from __future__ import annotations

import sys
import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

REFRESH_SECONDS = 0.25
PLAIN_SECONDS = 10.0


class Display:
    """Display of a run's progress; this one shows nothing."""

    def say(self, text: str) -> None:
        """Print one line that stays."""

    def update(self, fraction: float, text: str) -> None:
        """Show the current state, unless the last one is too recent; `fraction` of the budget (0 to 1) is used."""

    def close(self) -> None:
        """Give the terminal back."""


class PlainDisplay(Display):
    """Lines for a file or a pipe, at most one state every `PLAIN_SECONDS`."""

    def __init__(self) -> None:
        self._next_at = 0.0

    def say(self, text: str) -> None:
        # After a line that stays, the next state is shown at once.
        self._next_at = 0.0
        print(text, flush=True)

    def update(self, fraction: float, text: str) -> None:
        if time.monotonic() >= self._next_at:
            self._next_at = time.monotonic() + PLAIN_SECONDS
            print(f"{fraction:4.0%}  {text}", flush=True)


class BarDisplay(Display):
    """Bar that the training thread itself redraws: no second thread takes time from the step."""

    def __init__(self) -> None:
        columns = BarColumn(bar_width=24), TextColumn("{task.percentage:3.0f}%  {task.fields[text]}")
        self._bar = Progress(*columns, console=Console(highlight=False), auto_refresh=False, transient=True)
        self._task: TaskID | None = None
        self._next_at = 0.0

    def say(self, text: str) -> None:
        # Brackets in a message are text and not rich's markup.
        self._bar.console.print(text, markup=False)

    def update(self, fraction: float, text: str) -> None:
        if self._task is None:
            self._bar.start()
            self._task = self._bar.add_task("", total=1.0, text=text)
        if time.monotonic() >= self._next_at:
            self._next_at = time.monotonic() + REFRESH_SECONDS
            self._bar.update(self._task, completed=fraction, text=text, refresh=True)

    def close(self) -> None:
        self._bar.stop()


def display_for(is_first: bool) -> Display:
    """Return the display of this process: a silent one unless it is the first rank."""
    if not is_first:
        return Display()
    return BarDisplay() if sys.stdout.isatty() else PlainDisplay()
