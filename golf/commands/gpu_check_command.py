"""Check a GPU machine: numbers, compiling, ranks, steps, one run.

`golf gpu-check` is bench/gpu_check.py and needs a checkout of the repository.
"""

from __future__ import annotations

import importlib
import sys

from golf.errors import GolfError
from golf.paths import ROOT


def main(arguments: list[str]) -> int:
    """Run bench/gpu_check.py. Raises `GolfError` where the package was installed without its checkout."""
    if not (ROOT / "bench" / "gpu_check.py").is_file():
        raise GolfError(f"golf gpu-check needs {ROOT / 'bench'}, which only a checkout of the repository has.")
    # The folder bench/ is no part of the package.
    sys.path.insert(0, str(ROOT))
    status: int = importlib.import_module("bench.gpu_check").main(arguments)
    return status
