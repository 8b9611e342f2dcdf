"""Measure the speed of this machine and of golf on it.

`golf bench` is `python scripts/bench.py`.
"""

from __future__ import annotations

import runpy
import sys

from golf.paths import ROOT


def main(arguments: list[str]) -> int:
    """Run scripts/bench.py."""
    # The script reads its options there.
    sys.argv[1:] = arguments
    return runpy.run_path(str(ROOT / "scripts" / "bench.py"))["main"]()
