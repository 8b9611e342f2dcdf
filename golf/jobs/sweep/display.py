"""Show a running sweep: a line for every job that ends, and on a terminal also one for every job at work."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from golf.jobs.sweep.child import Child
from golf.jobs.sweep.jobs import Job, label, last_metric
from golf.run.folder import RunFolder
from golf.run.result import OK, Result

REFRESH_SECONDS = 0.5


class SweepDisplay:
    """The display of a sweep of `total` jobs, whose labels leave out their `common` overrides.

    The output of the runs themselves goes to their folders.
    """

    def __init__(self, total: int, common: Collection[str]):
        self._total, self._common, self._ended, self._next_redraw = total, common, 0, 0.0
        self._console = Console(highlight=False, markup=False, soft_wrap=True)
        self._has_said_waiting = False
        self._live: Live | None = None
        if sys.stdout.isatty():
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()

    def started(self, job: Job, folder: RunFolder) -> None:
        """Say that `job` has started. A terminal shows its line at work instead."""
        if self._live is None:
            self._say(f"started  {label(job, self._common)}  → {folder.output}")

    def ended(self, job: Job, result: Result) -> None:
        """Print the score of `job`, or why it has none."""
        self._ended += 1
        score = f"{result.final_score.val_bpb:.4f} bits per byte" if result.final_score else ""
        state = "" if result.state == OK else f"{result.state}: {result.reason}"
        self._say("  ".join(filter(None, (self._counted(), label(job, self._common), score, state))))

    def failed(self, job: Job, sentence: str) -> None:
        """Print why `job` could not be started."""
        self._ended += 1
        self._say(f"{self._counted()}  {label(job, self._common)}  error: {sentence}")

    def stopping(self, running: int) -> None:
        """Say that the sweep waits for `running` processes to stop."""
        self._say(f"stopping {running} runs; the same command continues the sweep")

    def update(self, running: Sequence[Child], waiting: int) -> None:
        """Redraw a terminal every half second. Without one, say once if the sweep waits for other processes."""
        if waiting and not running and not self._has_said_waiting:
            self._has_said_waiting = True
            self._say(f"waiting for {waiting} runs or their part of the machine: another process has them")
        if self._live is None or time.monotonic() < self._next_redraw:
            return
        self._next_redraw = time.monotonic() + REFRESH_SECONDS
        lines = [_line(child, self._common) for child in running]
        lines.append(
            Text(f"{self._ended} of {self._total} done, {len(running)} running, {waiting} to go", style="bold")
        )
        self._live.update(Group(*lines), refresh=True)

    def close(self) -> None:
        """Give the terminal back."""
        if self._live is not None:
            self._live.stop()

    def _counted(self) -> str:
        return f"{self._ended}/{self._total}"

    def _say(self, text: str) -> None:
        self._console.print(text)
        self._console.file.flush()


def _line(child: Child, common: Collection[str]) -> Text:
    """Return the line of a job at work: its label, seconds since its start, step and loss."""
    metric = last_metric(child.folder)
    parts = [f"  {label(child.job, common)}", f"{time.monotonic() - child.started_at:.0f} s"]
    if "step" in metric:
        parts.append(f"step {metric['step']}")
    if "train_loss" in metric:
        parts.append(f"loss {metric['train_loss']:.4f}")
    return Text("  ".join(parts), no_wrap=True, overflow="ellipsis")
