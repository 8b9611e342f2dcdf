"""Short documents first, or long ones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from golf.errors import GolfError
from golf.settings.config import Config, missing_for_documents
from golf.training.data.orders import DataOrder, Units
from golf.training.techniques.base import CHANGES_ORDER, Technique, technique


def by_length(units: Units, *, longest_first: bool) -> np.ndarray:
    """Return places by length, int64 `[n]`; those of one length are in random order."""
    shuffled = units.shuffled()
    keys = units.lengths[shuffled]
    return shuffled[np.argsort(-keys if longest_first else keys, kind="stable")]


@technique("by_length")
@dataclass
class ByLength(Technique):
    """Windows have one length, so that this is for packed documents."""

    source = "Shortformer, arXiv 2012.15832 (short inputs first)"
    effect = CHANGES_ORDER

    longest_first: bool = False

    def check(self, cfg: Config) -> None:
        """Raise `GolfError` for other orders than that of packed documents."""
        if cfg.data.loader != "packed_shuffled":
            missing = ["data.loader=packed_shuffled", *missing_for_documents(cfg, packed=True)]
            raise GolfError(f"tech by_length orders documents: set {' '.join(missing)}.")

    def data_order(self, cfg: Config) -> DataOrder:
        """Return the order."""
        return partial(by_length, longest_first=self.longest_first)
