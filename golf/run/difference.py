"""Differences between two configurations, and between the environments of two runs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, NamedTuple

from golf.run.identity import flat, identity
from golf.settings.config import Config

ENVIRONMENT_KEYS = ("python", "packages", "cpu", "cpu_cores", "gpus", "gpu", "cuda", "git", "variables")


class Difference(NamedTuple):
    """Setting and its two values; None where there is no such setting."""

    key: str
    one: Any
    other: Any


def differences(one: Config, other: Config) -> tuple[list[Difference], list[Difference]]:
    """Return the settings that make `one` and `other` two variants, and those that differ otherwise (seed, name, …)."""
    # asdict has every setting, also those that config.json and the identity leave out.
    everything = _compared(dict(flat(dataclasses.asdict(one))), dict(flat(dataclasses.asdict(other))))
    keys = {difference.key for difference in _compared(identity(one), identity(other))}
    return [d for d in everything if d.key in keys], [d for d in everything if d.key not in keys]


def environment_differences(one: Path, other: Path) -> list[Difference]:
    """Return the differences between the machines and package versions that two run folders record."""
    return _compared(_environment(one), _environment(other))


def _environment(folder: Path) -> dict[str, Any]:
    record = json.loads((folder / "environment.json").read_text())
    return dict(flat({key: record.get(key) for key in ENVIRONMENT_KEYS}))


def _compared(one: dict[str, Any], other: dict[str, Any]) -> list[Difference]:
    # An empty group has no settings, so it is no difference to having no such group.
    one, other = ({key: value for key, value in side.items() if value != {}} for side in (one, other))
    keys = sorted({*one, *other})
    return [Difference(k, one.get(k), other.get(k)) for k in keys if one.get(k) != other.get(k)]
