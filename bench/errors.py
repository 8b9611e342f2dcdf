"""Errors of a measurement in a table."""

from __future__ import annotations


def one_line(error: Exception) -> str:
    """Return kind and sentence of `error` for a cell of a table, at most 200 characters of it."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}".replace("|", "/")
