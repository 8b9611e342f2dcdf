"""The registry of techniques. Each technique adds its settings class under its name when it is imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Variable(NamedTuple):
    """An environment variable of the public scripts that selects a technique, or sets a detail of a selected one."""

    name: str
    sets: str | Callable[[str], dict[str, Any]] = ""  # setting that takes the value, or function to several settings
    selects: bool = False  # True: any value that does not mean "off" selects the technique
    instead_of: str = ""  # technique that is not selected beside this one


# Effects of techniques of which an artifact and its score know nothing: they change the steps of the optimizer, the
# loss that is trained, or the order of the training text.
CHANGES_STEP, CHANGES_LOSS, CHANGES_ORDER = "step", "loss", "order"
CHANGES_SCORE = "score"  # effect of a predictor that is mixed into the scores
TECHNIQUE_TYPES: dict[str, type] = {}
_loaders: list[Callable[[], object]] = []


def load_techniques_with(loader: Callable[[], object]) -> None:
    """Call `loader` when the registry is first read. `golf/__init__.py` sets it: no wing imports upwards."""
    _loaders.append(loader)


def technique_types() -> dict[str, type]:
    """Return the settings class of every technique by name. The first call imports them, and torch with them."""
    while _loaders:
        # The loader is taken off before it runs, because modules that it imports may read the registry themselves.
        _loaders.pop()()
    return TECHNIQUE_TYPES
