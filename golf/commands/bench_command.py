"""Measure the speed of this machine and of golf on it.

`golf bench` is `python scripts/bench.py` and needs a checkout of the repository.
"""

from __future__ import annotations

import runpy
import sys

from golf.errors import GolfError
from golf.paths import ROOT

SCRIPT = ROOT / "scripts" / "bench.py"


def main(arguments: list[str]) -> int:
    """Run scripts/bench.py. Raises `GolfError` where the package was installed without its checkout."""
    if not SCRIPT.is_file():
        raise GolfError(f"golf bench needs {SCRIPT}, which only a checkout of the repository has.")
    # The script reads its options there.
    sys.argv[1:] = arguments
    return runpy.run_path(str(SCRIPT))["main"]()
