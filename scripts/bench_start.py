"""Seconds from the command to its first training step, against `import torch` alone.

`python scripts/bench_start.py [overrides]`; both take turns, medians are printed. Nothing is compiled;
what the configuration does before the first step (warm-up steps, a first validation) counts.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from golf.paths import ROOT

SETTINGS = ("schedule.iterations=1", "launch.compile=off")


def seconds_to_import_torch() -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    return time.perf_counter() - start


def seconds_to_first_step(overrides: list[str]) -> float:
    """Until the log has the first step, less the time that step took."""
    with tempfile.TemporaryDirectory() as runs:
        command = [sys.executable, str(ROOT / "golf/train.py"), *overrides, *SETTINGS]
        start = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "GOLF_RUNS": runs}) as process:
            while process.poll() is None:
                logs = [path.read_text() for path in Path(runs).glob("*/*/train.log")]
                if logs and (line := re.search(r"step:1/1 train_loss.*train_time:(\d+)ms", logs[0])):
                    elapsed = time.perf_counter() - start
                    process.wait()
                    return elapsed - int(line[1]) / 1000
                time.sleep(0.005)
    raise SystemExit("error: the run ended before its first step; try the same overrides with golf/train.py")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", help="as for golf/train.py")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    seconds_to_first_step(arguments.overrides)  # builds data and fills the disk cache
    pairs = [(seconds_to_import_torch(), seconds_to_first_step(arguments.overrides)) for _ in range(arguments.rounds)]
    torch_seconds, step_seconds = (statistics.median(values) for values in zip(*pairs, strict=True))
    print(f"import torch            {torch_seconds:.2f} s")
    print(f"command to first step   {step_seconds:.2f} s")
    print(f"difference              {statistics.median(b - a for a, b in pairs):.2f} s (median of {len(pairs)} pairs)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
