"""Tables of names, words and sentences, each in a YAML file beside the module that uses it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml


def table_of(module: str) -> dict[str, Any]:
    """Return the content of the YAML file of a module, whose `__file__` is `module`."""
    # The loader in C, which some builds of PyYAML lack, is ten times as fast.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return dict(yaml.load(Path(module).with_suffix(".yaml").read_text(encoding="utf-8"), loader))


def any_of(expressions: Iterable[str], flags: int = 0) -> re.Pattern[str]:
    """Return an expression that matches what any of the given ones matches; the first of several counts."""
    return re.compile("|".join(expressions), flags)
