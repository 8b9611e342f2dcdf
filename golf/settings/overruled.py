"""Numbers of an experiment that the scale replaces: a scale comes after the experiment, and what it sets wins."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import yaml

from golf.paths import ROOT
from golf.settings.config import Config
from golf.words import as_override, listed

CONF = ROOT / "conf"
MOST_NAMED = 6
# Neither changes a result.
NOT_COMPARED = ("scale.", "launch.")


def replaced_by_scale(overrides: Sequence[str], cfg: Config) -> list[str]:
    """Return a remark if the scale of `cfg` has replaced plain numbers of the experiment that `overrides` select.

    Numbers that the experiment writes as `${steps:…}` are meant to be shrunk, and those of the command line stay.
    """
    chosen = [match[1] for o in overrides if (match := re.fullmatch(r"\+*experiment=(.+)", o))]
    if not chosen:
        return []
    asked, scale = _of_experiment(chosen[-1], ()), _numbers(_read(f"scale/{cfg.scale.name}"))
    replaced = [
        f"{key}={as_override(value)} by {as_override(scale[key])}"
        for key, value in asked.items()
        if not key.startswith(NOT_COMPARED) and scale.get(key, value) != value and _value(cfg, key) == scale[key]
    ]
    if not replaced:
        return []
    what = listed(replaced, MOST_NAMED)
    return [
        f"note: scale={cfg.scale.name} replaces {what} of experiment={chosen[-1]}: give one as an override to keep it"
    ]


def _of_experiment(name: str, above: tuple[str, ...]) -> dict[str, float]:
    """Return the plain numbers of experiment `name` by full key, with those of the experiments that it builds on."""
    values, numbers = _read(f"experiment/{name}"), dict[str, float]()
    for base in values.get("defaults") or ():
        # Other groups have a slash in front, and _self_ is the file's own place.
        if isinstance(base, str) and re.match(r"\w[\w./-]*$", base) and base not in ("_self_", *above):
            numbers |= _of_experiment(base, (*above, name))
    return numbers | _numbers(values)


def _read(name: str) -> dict[str, Any]:
    try:
        values = yaml.safe_load((CONF / f"{name}.yaml").read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return values if isinstance(values, dict) else {}


def _numbers(values: dict[str, Any], prefix: str = "") -> dict[str, float]:
    """Return the numbers in nested `values` by full key, without resolvers and texts."""
    found: dict[str, float] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            found |= _numbers(value, f"{prefix}{key}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found[f"{prefix}{key}"] = value
    return found


def _value(cfg: Config, key: str) -> Any:
    value: Any = cfg
    for part in key.split("."):
        value = getattr(value, part, None)
    return value
