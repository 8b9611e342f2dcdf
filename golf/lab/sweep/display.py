"""Show a running sweep: a line for every job that ends, and on a terminal one for every job at work, and a bar."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from golf.lab.sweep.child import Child
from golf.lab.sweep.jobs import Job, label, last_metric
from golf.run.folder import RunFolder
from golf.run.result import OK, Result
from golf.words import counted, duration

REFRESH_SECONDS = 0.5
BAR_WIDTH = 24
GOOD, BAD = "green", "red"


class SweepDisplay:
    """The display of a sweep of `total` jobs, whose labels leave out their `common` overrides.

    The output of the runs themselves goes to their folders.
    """

    def __init__(self, total: int, common: Collection[str]):
        self._total, self._common, self._ended, self._next_redraw = total, common, 0, 0.0
        self._console = Console(highlight=False, markup=False, soft_wrap=True)
        self._has_said_waiting = False
        self._seconds: list[float] = []  # durations of the runs that have ended here
        self._best: tuple[float, str] | None = None  # bits per byte and label of the best run so far
        self._live: Live | None = None
        if sys.stdout.isatty():
            # The sweep's own loop redraws, and a transient display leaves only the lines of ended runs behind.
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()

    def started(self, job: Job, folder: RunFolder) -> None:
        """Say that `job` has started. A terminal shows its line at work instead."""
        if self._live is None:
            self._say(f"started  {label(job, self._common)}  → {folder.output}")

    def ended(self, job: Job, result: Result, seconds: float | None = None) -> None:
        """Print the score of `job`, or why it has none. `seconds` is its duration, if it ran here."""
        self._ended += 1
        # A run that failed early or finished before says nothing about the time that others take.
        if seconds is not None and result.state == OK:
            self._seconds.append(seconds)
        if result.state == OK and result.final_score:
            scored = result.final_score.val_bpb, label(job, self._common)
            self._best = min(self._best or scored, scored)
        score = f"{result.final_score.val_bpb:.4f} bits per byte" if result.final_score else ""
        state = "" if result.state == OK else f"{result.state}: {result.reason}"
        words = Text("  ".join(filter(None, (self._counted(), label(job, self._common), score))))
        if state:
            words.append(f"  {state}", style=BAD)
        self._say(words)

    def failed(self, job: Job, sentence: str) -> None:
        """Print why `job` could not be started."""
        self._ended += 1
        self._say(Text(f"{self._counted()}  {label(job, self._common)}  ").append(f"error: {sentence}", style=BAD))

    def stopping(self, running: int) -> None:
        """Say that the sweep waits for `running` processes to stop."""
        self._say(f"stopping {counted(running, 'run')}; the same command continues the sweep")

    def update(self, running: Sequence[Child], waiting: int) -> None:
        """Redraw a terminal every half second. Without one, say once if the sweep waits for other processes."""
        if waiting and not running and not self._has_said_waiting:
            self._has_said_waiting = True
            self._say(f"waiting for {counted(waiting, 'run')} or a part of the machine, which another process has")
        if self._live is None or time.monotonic() < self._next_redraw:
            return
        self._next_redraw = time.monotonic() + REFRESH_SECONDS
        lines = [_line(child, self._common) for child in running]
        elapsed = [time.monotonic() - child.started_at for child in running]
        self._live.update(Group(*lines, self._bar(elapsed, waiting)), refresh=True)

    def _bar(self, elapsed: Sequence[float], waiting: int) -> Table:
        """Return the bar of the whole sweep with its counts, the time left and the best score so far."""
        words = Text(f"{self._ended} of {self._total} done, {len(elapsed)} running, {waiting} to go", style="bold")
        if left := time_left(self._seconds, elapsed, waiting):
            words.append(f"  about {left} left", style="not bold")
        if self._best:
            words.append(f"  best {self._best[0]:.4f}", style=GOOD).append(f" ({self._best[1]})", style="not bold")
        words.no_wrap, words.overflow = True, "ellipsis"
        grid = Table.grid(padding=(0, 2))
        grid.add_row(ProgressBar(total=self._total, completed=self._ended, width=BAR_WIDTH), words)
        return grid

    def close(self) -> None:
        """Give the terminal back."""
        if self._live is not None:
            self._live.stop()

    def _counted(self) -> str:
        return f"{self._ended}/{self._total}"

    def _say(self, text: str | Text) -> None:
        self._console.print(text)
        self._console.file.flush()


def time_left(ended: Sequence[float], running: Sequence[float], waiting: int) -> str:
    """Return the time until all runs have ended, such as `14 min`; empty before the first has ended.

    `ended` has the seconds that ended runs took, `running` those of the runs at work so far.
    """
    if not ended or not running:
        return ""
    mean = sum(ended) / len(ended)
    # As many run at once as now, and each takes as long as those before.
    return duration((sum(max(mean - now, 0.0) for now in running) + waiting * mean) / len(running))


def _line(child: Child, common: Collection[str]) -> Text:
    """Return the line of a job at work: its label, seconds since its start, step and loss."""
    metric = last_metric(child.folder)
    parts = [f"  {label(child.job, common)}", f"{time.monotonic() - child.started_at:.0f} s"]
    if "step" in metric:
        parts.append(f"step {metric['step']}")
    if "train_loss" in metric:
        parts.append(f"loss {metric['train_loss']:.4f}")
    return Text("  ".join(parts), no_wrap=True, overflow="ellipsis")
