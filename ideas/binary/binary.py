"""Binary weights: a sign for each, and the mean of |w| of every 128 neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from golf.artifact.quant.groups import GroupFormat
from golf.errors import GolfError
from golf.settings.config import Config
from golf.settings.fields import number
from golf.training.techniques.base import CHANGES_STORAGE, Technique, technique


@dataclass(frozen=True)
class Signs(GroupFormat):
    """Codes -1 and 0 for weights below zero and others, and the mean of |w| for each group."""

    bits: int = 1
    scale_dtype: ClassVar[torch.dtype] = torch.bfloat16

    def codes(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Return the signs of `w` as codes, and the means of |w| `[n]`."""
        return -(w < 0).to(torch.int8), self.means(w.abs()).to(self.scale_dtype)

    def values(self, codes: Tensor, scales: Tensor) -> Tensor:
        """Return ± the mean of the weight's group."""
        each = self.per_weight(scales, codes.shape)
        return torch.where(codes < 0, -each, each)


@technique("binary")
@dataclass
class Binary(Technique):
    """A model has to be trained with it: select fake_quant, too."""

    source = "PR #641; XNOR-Net, arXiv 1603.05279"
    effect = CHANGES_STORAGE

    group: int = number(128, at_least=1)  # weights that share a scale

    def check(self, cfg: Config) -> None:
        """Refuse averages of the weights, whose signs no step has trained."""
        if averages := [name for name in ("ema", "swa", "lawa") if name in cfg.tech]:
            raise GolfError(f"The signs of averaged weights were never trained: drop {averages[0]} beside binary.")

    def warnings(self, cfg: Config) -> list[str]:
        """Return a sentence about training without the signs, and about decay, which moves no sign."""
        found = [] if "fake_quant" in cfg.tech else ["binary rounds after the training alone: add +tech=fake_quant"]
        return found + (["optim.muon_wd shrinks binary weights and leaves their signs"] if cfg.optim.muon_wd else [])

    def number_format(self) -> Signs:
        """Return the format of signs."""
        return Signs(self.name, self.group)
