"""One order of the training text for all passes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from golf.settings.config import Config
from golf.training.data.orders import DataOrder, Units
from golf.training.techniques.base import CHANGES_ORDER, Technique, technique


def of_first_pass(units: Units) -> np.ndarray:
    """Return the same random places in every pass, int64 `[n]`."""
    return np.random.default_rng(units.seed).permutation(units.lengths.size)


@technique("shuffled_once")
@dataclass
class ShuffledOnce(Technique):
    """A pass meets the text as the one before it did."""

    source = "the usual data loaders, which shuffle a file and read it again and again"
    effect = CHANGES_ORDER

    def data_order(self, cfg: Config) -> DataOrder:
        """Return the order."""
        return of_first_pass
