"""Tables: of names, words and sentences, each in a YAML file beside its module, and of values by their keys."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import yaml

K = TypeVar("K")
V = TypeVar("V")


def table_of(module: str, name: str = "") -> dict[str, Any]:
    """Return the content of a YAML file beside the module whose `__file__` is given: `name`, or called like it."""
    # The loader in C, which some builds of PyYAML lack, is ten times as fast.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    path = Path(module).with_name(name) if name else Path(module).with_suffix(".yaml")
    return dict(yaml.load(path.read_text(encoding="utf-8"), loader))


def any_of(expressions: Iterable[str], flags: int = 0) -> re.Pattern[str]:
    """Return an expression that matches what any of the given ones matches; the first of several counts."""
    return re.compile("|".join(expressions), flags)


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Return the values of each key, in the order of `pairs`."""
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups
