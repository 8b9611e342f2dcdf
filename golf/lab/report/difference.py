"""Differences between two configurations, and between the environments of two runs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

from golf.files import read_json
from golf.lab.report.unread import is_unread
from golf.run.identity import flat, identity
from golf.settings.config import Config, to_dict

ENVIRONMENT_KEYS = ("python", "packages", "cpu", "cpu_cores", "gpus", "gpu", "cuda", "git", "variables")


class Difference(NamedTuple):
    """Setting and its two values; None where there is no such setting."""

    key: str
    one: Any
    other: Any


def differences(one: Config, other: Config) -> tuple[list[Difference], list[Difference]]:
    """Return the settings that make `one` and `other` two variants, and those that differ otherwise (seed, name, …).

    A technique, or a pattern of `quant.by_name`, that one side lacks is one difference. A setting of what is off on a
    side is None there, and left out if it is off on both, unless nothing else makes two variants.
    """
    mine, theirs = _entries(one), _entries(other)
    # Two dicts are compared setting by setting.
    whole = {k for k in {*mine, *theirs} if not (isinstance(mine.get(k), dict) and isinstance(theirs.get(k), dict))}
    # asdict has every setting, also those that config.json and the identity leave out.
    everything = _compared(dict(flat(dataclasses.asdict(one))), dict(flat(dataclasses.asdict(other))))
    single = [d for d in everything if not f"{d.key}.".startswith(tuple(f"{key}." for key in whole))]
    keys = {difference.key for difference in _compared(identity(one), identity(other))}
    variant = [d for d in single if d.key in keys]
    shown = [Difference(key, mine.get(key), theirs.get(key)) for key in whole]
    shown += [Difference(key, _read(key, a, one), _read(key, b, other)) for key, a, b in variant]
    return sorted(d for d in shown if d.one != d.other) or variant, [d for d in single if d.key not in keys]


def _read(key: str, value: Any, cfg: Config) -> Any:
    return None if is_unread(key, cfg) else value


def _entries(cfg: Config) -> dict[str, Any]:
    """Return the techniques and the patterns of `quant.by_name`, each with all that it sets."""
    values = to_dict(cfg)
    groups = {"tech": values["tech"], "quant.by_name": values["quant"]["by_name"]}
    return {f"{group}.{name}": entry for group, entries in groups.items() for name, entry in entries.items()}


def environment_differences(one: Path, other: Path) -> list[Difference]:
    """Return the differences between the machines and package versions that two run folders record."""
    return _compared(_environment(one), _environment(other))


def _environment(folder: Path) -> dict[str, Any]:
    record = read_json(folder / "environment.json")
    return dict(flat({key: record.get(key) for key in ENVIRONMENT_KEYS}))


def _compared(one: dict[str, Any], other: dict[str, Any]) -> list[Difference]:
    # An empty group has no settings, so it is no difference to having no such group.
    one, other = ({key: value for key, value in side.items() if value != {}} for side in (one, other))
    return [Difference(k, one.get(k), other.get(k)) for k in sorted({*one, *other}) if one.get(k) != other.get(k)]
