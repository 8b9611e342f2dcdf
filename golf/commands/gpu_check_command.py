"""Check a GPU machine: numbers, compiling, ranks, steps, one run.

`golf gpu-check` is bench/gpu_check.py.
"""

from __future__ import annotations

import importlib
import sys

from golf.paths import ROOT


def main(arguments: list[str]) -> int:
    """Run bench/gpu_check.py."""
    # The folder bench/ is no part of the package.
    sys.path.insert(0, str(ROOT))
    status: int = importlib.import_module("bench.gpu_check").main(arguments)
    return status
