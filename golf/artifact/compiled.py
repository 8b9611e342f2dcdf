"""Compilation of inner loops by numba, for the entropy coder and the trellis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


def compiled(function: Callable[..., Any]) -> Any:
    """Return `function` as machine code, compiled at its first call and cached beside its file where that can be."""
    # Without a check for zero: what divides is clamped before. Without the interpreter's lock, so that the rows of a
    # matrix can be rounded on several threads.
    options: dict[str, Any] = {"error_model": "numpy", "nogil": True}
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:
        # No folder for the cache can be written: the code is compiled for this process alone.
        return njit(**options)(function)
