"""Seconds from the command to the first step: starting, importing, composing, data and compiling, cold and warm.

Every measurement is a process of its own. A row also notes processor seconds, which other work on the machine disturbs
less than seconds on the clock.
"""

from __future__ import annotations

import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.table import Row
from golf.errors import GolfError
from golf.paths import ROOT

COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "import torch": ["-c", "import torch"],
    "golf/train.py --help": ["golf/train.py", "--help"],
    "golf report of no runs": ["-m", "golf", "report", "multirun"],
    "golf plan": ["-m", "golf", "plan"],
}
PHASES = ("import", "compose", "data", "model and optimizer", "compile and first step", "second step")
ONE_STEP = ("schedule.iterations=1", "launch.compile=off")


def start_rows(overrides: list[str], modes: list[str], rounds: int) -> list[Row]:
    """Return rows for short commands, for the start-up phases in every compile mode, and for the whole start."""
    rows = [_command_row(name, command, overrides, rounds) for name, command in COMMANDS.items()]
    for mode in modes:
        with tempfile.TemporaryDirectory() as cache:
            settings = [*overrides, f"launch.compile={mode}"]
            # The second process finds what the first one has compiled.
            runs = [phases(settings, Path(cache)) for _ in range(1 if mode == "off" else 2)]
        for what, found in zip(("cold", "warm"), runs, strict=False):
            what = "" if mode == "off" else f", {what} cache"
            rows += [Row("start", f"compile={mode}{what}: {name}", [found[name]]) for name in PHASES]
    # The first one is not counted: it builds the data and fills the disk cache.
    seconds_to_first_step(overrides)
    whole = [seconds_to_first_step(overrides) for _ in range(rounds)]
    return [*rows, Row("start", "golf/train.py to its first step, eager", whole)]


def _command_row(name: str, command: list[str], overrides: list[str], rounds: int) -> Row:
    arguments = [*command, *(overrides if name == "golf plan" else [])]
    wall, processor = zip(*(_timed(arguments) for _ in range(rounds)), strict=True)
    return Row("start", name, list(wall), note=f"processor {statistics.median(processor):.2f} s")


def _timed(arguments: list[str]) -> tuple[float, float]:
    """Return the seconds on the clock and of the processor that a Python command takes."""
    before, start = _processor_seconds(), time.perf_counter()
    with tempfile.TemporaryDirectory() as runs:
        environment = {**os.environ, "GOLF_RUNS": runs}
        subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True)
    return time.perf_counter() - start, _processor_seconds() - before


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def phases(overrides: list[str], cache: Path) -> dict[str, float]:
    """Return the seconds of each phase of PHASES in a new process whose compiler caches in `cache`."""
    kept = {"TORCHINDUCTOR_CACHE_DIR": str(cache), "TRITON_CACHE_DIR": str(cache / "triton")}
    command = [sys.executable, "-m", "bench.startup_phases", *overrides]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **kept}, capture_output=True, encoding="utf-8")
    if done.returncode:
        raise GolfError(f"the start could not be measured: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def seconds_to_first_step(overrides: list[str]) -> float:
    """Return the seconds until the first training step begins, warm-up steps included."""
    with tempfile.TemporaryDirectory() as runs:
        command = [sys.executable, str(ROOT / "golf/train.py"), *overrides, *ONE_STEP]
        start = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "GOLF_RUNS": runs}) as process:
            while process.poll() is None:
                logs = [path.read_text(encoding="utf-8") for path in Path(runs).glob("*/*/train.log")]
                if logs and (line := re.search(r"step:1/1 train_loss.*train_time:(\d+)ms", logs[0])):
                    # The log has a step after its end, so the step's own time is taken off.
                    elapsed = time.perf_counter() - start
                    process.wait()
                    return elapsed - int(line[1]) / 1000
                time.sleep(0.005)
    raise GolfError("the run ended before its first step; try the same overrides with golf/train.py.")
