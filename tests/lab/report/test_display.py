"""Progress of a run: a bar in a terminal, rare lines in a file."""

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from golf.lab.corpora.own_text import OwnDataset
from golf.run import console
from tests.support import ROOT, further, tiny_overrides


def in_terminal(command: list[str]) -> str:
    """Return the output of a command whose standard output is a terminal of 120 columns."""
    controller, terminal = pty.openpty()
    environment = {**os.environ, "COLUMNS": "120", "TERM": "xterm"}
    process = subprocess.Popen(command, stdout=terminal, stderr=terminal, cwd=ROOT, env=environment)
    os.close(terminal)
    output, until = b"", time.monotonic() + 600
    while time.monotonic() < until:
        ready, _, _ = select.select([controller], [], [], 0.5)
        try:
            chunk = os.read(controller, 65536) if ready else b""
        except OSError:  # the other end is closed
            break
        output += chunk
        if not chunk and process.poll() is not None:
            break
    os.close(controller)
    assert process.wait(timeout=900) == 0, output.decode()
    return output.decode()


@pytest.mark.slow
@pytest.mark.parametrize("nproc", [further(1), 2])
def test_a_terminal_gets_a_bar_with_step_loss_speed_and_time_left(tiny: OwnDataset, runs: Path, nproc: int) -> None:
    overrides = [*tiny_overrides(tiny), "schedule.iterations=30", f"launch.nproc={nproc}"]
    shown = in_terminal([sys.executable, "golf/train.py", *overrides])
    assert "━" in shown and "tokens/s" in shown and "s left" in shown and "loss" in shown
    assert "\x1b[2K" in shown  # the line is redrawn in place
    assert "from the artifact" in shown and "bits per byte" in shown


def test_plain_lines_are_rare_enough_to_read(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    display = console.PlainDisplay()
    for second in range(31):
        now[0] = float(second)
        display.update(second / 100, f"step {second}")
    assert capsys.readouterr().out.splitlines() == ["  0%  step 0", " 10%  step 10", " 20%  step 20", " 30%  step 30"]


def test_other_ranks_say_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    display = console.display_for(is_first=False)
    display.say("x")
    display.update(0.5, "y")
    display.close()
    assert capsys.readouterr().out == ""
