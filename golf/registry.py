"""The registry of techniques. Each technique adds its settings class under its name when it is imported."""

from __future__ import annotations

from collections.abc import Callable

TECHNIQUE_TYPES: dict[str, type] = {}
_loaders: list[Callable[[], object]] = []


def load_techniques_with(loader: Callable[[], object]) -> None:
    """Call `loader` when the registry is first read. `golf/__init__.py` sets it: no wing imports upwards."""
    _loaders.append(loader)


def technique_types() -> dict[str, type]:
    """Return the settings class of every technique by name. The first call imports them, and torch with them."""
    while _loaders:
        _loaders.pop()()
    return TECHNIQUE_TYPES
