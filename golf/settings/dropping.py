"""`drop=[name]`: removal by name of a technique or a plain setting that an experiment switches on."""

from __future__ import annotations

from collections.abc import Callable, Collection
from operator import attrgetter
from typing import Any

from golf.errors import GolfError
from golf.settings.config import TENSOR_CLASSES, Config, is_packed, tensor_classes
from golf.tables import table_of

# Name → settings and their values without it; a function computes from the Config.
OFF: dict[str, dict[str, Any]] = {
    name: {key.replace("KEY", kind): value for key, value in values.items() for kind in TENSOR_CLASSES}
    for name, values in table_of(__file__).items()
}
# Packed rows hold several documents, which only attention within documents keeps apart.
OFF["documents"]["data.loader"] = lambda cfg: "sequential" if is_packed(cfg) else cfg.data.loader
OFF["gqa"]["model.num_kv_heads"] = lambda cfg: cfg.model.num_heads


def drop(cfg: Config) -> None:
    """Remove everything that `cfg.drop` names from `cfg` in place. Raises `GolfError` for a name that is not on."""
    for name in cfg.drop:
        if name in cfg.tech:
            del cfg.tech[name]
            _leave_format(cfg, name)
        elif name in OFF and is_on(cfg, name):
            switch_off(cfg, name)
        else:
            raise GolfError(f"drop=[{name}]: it is not switched on. On are {', '.join(droppable(cfg))}.")


def _leave_format(cfg: Config, name: str) -> None:
    """Store as int8 what is stored in the number format of the technique `name`, in place."""
    for how in tensor_classes(cfg.quant).values():
        how.format = "int8" if how.format == name else how.format
    for pattern, rule in cfg.quant.by_name.items():
        settings = rule if isinstance(rule, dict) else {"format": rule}
        if settings.get("format") == name:
            cfg.quant.by_name[pattern] = {**settings, "format": "int8"}


def switch_off(cfg: Config, name: str, keys: Collection[str] | None = None) -> None:
    """Set the plain setting `name` of `OFF`, or only those of its `keys`, to what it is without it, in place."""
    for key, value in OFF[name].items():
        if keys is None or key in keys:
            group, _, field = key.rpartition(".")
            setattr(attrgetter(group)(cfg), field, _value(cfg, value))


def keys_that_are_on(cfg: Config, name: str) -> list[str]:
    """Return the settings of a row of `OFF` that differ from what they are without it."""
    return [key for key, value in OFF[name].items() if attrgetter(key)(cfg) != _value(cfg, value)]


def is_on(cfg: Config, name: str) -> bool:
    """Tell whether a plain setting of `OFF` is switched on."""
    return bool(keys_that_are_on(cfg, name))


def droppable(cfg: Config) -> list[str]:
    """Return the names of everything that `drop` could remove from `cfg`."""
    return sorted([*cfg.tech, *(name for name in OFF if is_on(cfg, name))])


def _value(cfg: Config, value: Any | Callable[[Config], Any]) -> Any:
    return value(cfg) if callable(value) else value
