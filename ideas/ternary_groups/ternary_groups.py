"""Ternary weights: -1, 0 or 1 for each, times a scale for every 128 neighbours."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from golf.artifact.quant.formats import as_stored
from golf.artifact.quant.groups import GroupFormat
from golf.errors import GolfError
from golf.settings.config import Config
from golf.settings.fields import number, one_of
from golf.training.techniques.base import CHANGES_STORAGE, Technique, technique


@dataclass(frozen=True)
class Trits(GroupFormat):
    """Codes clamp(round(w / s), ±1), with s the mean of |w| in the weight's group, or its root mean square."""

    scale: str
    bits: int = 2

    def codes(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Return the codes, and the scales `[n]`."""
        size = self.means(w.abs()) if self.scale == "mean" else self.means(w.square()).sqrt()
        # By the stored scale, so that training and the artifact agree.
        scales = as_stored(size)
        each = self.per_weight(scales, w.shape)
        return (w / each).round().clamp(-1, 1).to(torch.int8), scales.to(self.scale_dtype)

    def values(self, codes: Tensor, scales: Tensor) -> Tensor:
        """Return the codes times the scales of their groups."""
        return codes * self.per_weight(scales, codes.shape)


@technique("ternary_groups")
@dataclass
class TernaryGroups(Technique):
    """A model has to be trained with it: select fake_quant, too."""

    source = "BitNet b1.58, arXiv 2402.17764; PR #640 (mean of |w|), PR #920 (root mean square)"
    effect = CHANGES_STORAGE

    group: int = number(128, at_least=1)  # weights that share a scale
    scale: str = one_of("mean", "rms")  # of a group; mean: of |w| | rms: root of the mean square

    def check(self, cfg: Config) -> None:
        """Refuse averages of the weights, whose codes no step has trained."""
        if averages := [name for name in ("ema", "swa", "lawa") if name in cfg.tech]:
            raise GolfError(f"The codes of averaged weights were never trained: drop {averages[0]}.")

    def warnings(self, cfg: Config) -> list[str]:
        """Return a sentence about training without the codes, and about decay, which moves scales alone."""
        found = [] if "fake_quant" in cfg.tech else [f"{self.name} rounds after the training alone: add fake_quant"]
        return found + (["optim.muon_wd shrinks ternary weights and their scales alike"] if cfg.optim.muon_wd else [])

    def number_format(self) -> Trits:
        """Return the format of -1, 0 and 1."""
        return Trits(self.name, self.group, self.scale)
