"""Readings: numbers that techniques log of themselves, such as a decay or the mean of a gate."""

from __future__ import annotations

from collections.abc import Callable

import torch

from golf.errors import GolfError
from golf.settings.config import Config, techniques
from golf.training.model.gpt import GPT
from golf.training.techniques.base import Technique

SEPARATOR = "/"  # between technique and number; trackers group charts by the part before it


def readings_of(cfg: Config, model: GPT) -> Callable[[], dict[str, float]]:
    """Return a function to the numbers of the selected techniques now, by `technique/number`.

    It raises `GolfError` for what is no single number.
    """
    telling = [t for t in techniques(cfg) if type(t).readings is not Technique.readings]

    def read() -> dict[str, float]:
        values: dict[str, float] = {}
        with torch.no_grad():
            for technique in telling:
                for key, value in technique.readings(model).items():
                    values[f"{technique.name}{SEPARATOR}{key}"] = _number(value, f"{technique.name}: {key}")
        return values

    return read


def _number(value: object, what: str) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError) as error:
        raise GolfError(f"The reading {what} is no single number ({error}): take its mean or name each.") from error
