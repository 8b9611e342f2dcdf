"""What a sweep shows while it runs: a line for every job that ends, and on a terminal one for every job at work."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from golf.jobs.sweep.child import Child
from golf.jobs.sweep.jobs import Job, label
from golf.run.folder import RunFolder
from golf.run.result import OK, Result

REFRESH_SECONDS = 0.5


class SweepDisplay:
    """For `total` jobs, whose labels leave out what all have in `common`. What the runs print is in their folders."""

    def __init__(self, total: int, common: Collection[str]):
        self._total, self._common, self._ended, self._next_at = total, common, 0, 0.0
        self._console = Console(highlight=False, markup=False, soft_wrap=True)
        self._told = False
        self._live: Live | None = None
        if sys.stdout.isatty():
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()

    def started(self, job: Job, folder: RunFolder) -> None:
        if self._live is None:
            self._say(f"started  {label(job, self._common)}  → {folder.output}")

    def ended(self, job: Job, result: Result) -> None:
        self._ended += 1
        score = f"{result.final_score.val_bpb:.4f} bits per byte" if result.final_score else ""
        state = "" if result.state == OK else f"{result.state}: {result.reason}"
        self._say("  ".join(filter(None, (self._counted(), label(job, self._common), score, state))))

    def failed(self, job: Job, sentence: str) -> None:
        """It could not be started."""
        self._ended += 1
        self._say(f"{self._counted()}  {label(job, self._common)}  error: {sentence}")

    def stopping(self, running: int) -> None:
        self._say(f"stopping {running} runs; the same command continues the sweep")

    def update(self, running: Sequence[Child], waiting: int) -> None:
        """Redraw, if there is a terminal and it is time."""
        if waiting and not running and not self._told:
            self._told = True
            self._say(f"waiting for {waiting} runs or their part of the machine: another process has them")
        if self._live is None or time.monotonic() < self._next_at:
            return
        self._next_at = time.monotonic() + REFRESH_SECONDS
        lines = [_line(child, self._common) for child in running]
        lines.append(
            Text(f"{self._ended} of {self._total} done, {len(running)} running, {waiting} to go", style="bold")
        )
        self._live.update(Group(*lines), refresh=True)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()

    def _counted(self) -> str:
        return f"{self._ended}/{self._total}"

    def _say(self, text: str) -> None:
        self._console.print(text)
        self._console.file.flush()


def _line(child: Child, common: Collection[str]) -> Text:
    """One job at work: what it varies, for how long, how far it is."""
    metric = child.last_metric()
    parts = [f"  {label(child.job, common)}", f"{time.monotonic() - child.started_at:.0f} s"]
    if "step" in metric:
        parts.append(f"step {metric['step']}")
    if "train_loss" in metric:
        parts.append(f"loss {metric['train_loss']:.4f}")
    return Text("  ".join(parts), no_wrap=True, overflow="ellipsis")
