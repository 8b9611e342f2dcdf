"""The kernels in Triton equal torch's operations on a CPU, in a process in which Triton interprets them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support import ROOT

CASES = Path(__file__).with_name("interpreted_kernels.py")

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason='needs Triton: pip install "golf[kernels]"'),
    pytest.mark.skipif(
        np.lib.NumpyVersion(np.__version__) >= "2.4.0"
        and importlib.util.find_spec("triton") is not None
        and importlib.metadata.version("triton") < "3.7",
        reason="the interpreter of Triton 3.6, which torch 2.11 has, needs NumPy before 2.4",
    ),
]


def interpreted(selected: str) -> None:
    """Run the cases that `selected` marks. Triton has to know before its import that it interprets."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", selected, str(CASES)]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-5000:]


@pytest.mark.slow
def test_losses_and_mlps_and_their_gradients() -> None:
    interpreted("not slow")


@pytest.mark.slow
def test_compiled_models() -> None:
    interpreted("slow")
