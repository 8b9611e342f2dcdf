"""A running sweep on a terminal: a bar with counts, time left and the best score, and failures in red."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from golf.bits import Score
from golf.lab.sweep.display import SweepDisplay, time_left
from golf.lab.sweep.jobs import Job
from golf.run.result import Result
from golf.settings.config import Config


@pytest.mark.parametrize(
    ("ended", "running", "waiting", "text"),
    [
        ([], [5.0], 3, ""),
        ([100.0], [], 0, ""),
        ([100.0, 200.0], [50.0], 0, "2 min"),
        ([60.0], [30.0, 30.0], 0, "30 s"),
        ([60.0], [60.0, 90.0], 4, "2 min"),
        ([3600.0], [0.0], 4, "5.0 h"),
    ],
)
def test_time_left_is_that_of_runs_like_those_before(
    ended: list[float], running: list[float], waiting: int, text: str
) -> None:
    assert time_left(ended, running, waiting) == text


def test_the_bar_has_counts_time_and_the_best_so_far() -> None:
    display = SweepDisplay(4, ["model=4l"])
    jobs = [Job(("model=4l", f"seed={seed}"), Config(seed=seed), ("abc", seed)) for seed in (1, 2, 3)]
    out = io.StringIO()
    display._console = Console(file=out, force_terminal=True, width=120, color_system="standard")
    for job, bpb in zip(jobs, (3.2, 3.1), strict=False):
        display.ended(job, Result("x", "abc", 1, state="ok", post_quant=Score(1.0, bpb, 1, 1, 0.1)), 60.0)
    display.ended(jobs[2], Result("x", "abc", 3, state="crashed", reason="no memory"), 1.0)
    assert "2/4  seed=2  3.1000 bits per byte" in out.getvalue()
    assert "\x1b[31mcrashed: no memory" in out.getvalue().replace("  crashed", "crashed")
    shown = io.StringIO()
    Console(file=shown, width=120).print(display._bar([30.0], 0))
    assert "3 of 4 done, 1 running, 0 to go  about 30 s left  best 3.1000 (seed=2)" in shown.getvalue()
    assert "━" in shown.getvalue()
