"""Weights in the eight bits of float8_e4m3fn, without a scale; embedding and maps outside the blocks train with it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from golf.artifact.quant.formats import OwnFormat
from golf.artifact.quant.policy import storage_of
from golf.settings.config import Config
from golf.training.model.gpt import GPT
from golf.training.model.layers import CastedLinear
from golf.training.techniques.base import CHANGES_STORAGE, WEIGHTS, Technique, technique

LARGEST = torch.finfo(torch.float8_e4m3fn).max  # 448; the cast makes what is larger no number


def as_e4m3(w: Tensor) -> Tensor:
    """Return the nearest numbers of the format. Below 2⁻¹⁰ that is zero."""
    return w.clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn)


def rounded(w: Tensor, _: object = None) -> Tensor:
    """Return the values that are stored for `w`, in its dtype; gradients pass as if nothing had been rounded."""
    return as_e4m3(w.detach()).to(w.dtype) + (w - w.detach())


@dataclass(frozen=True)
class Float8(OwnFormat):
    """The bits of a float8_e4m3fn as codes, and no scale."""

    name: str
    bits: int = 8

    def codes(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Return the bits, int8, and no scales."""
        return as_e4m3(w).view(torch.int8), torch.zeros(0, dtype=self.scale_dtype, device=w.device)

    def values(self, codes: Tensor, scales: Tensor) -> Tensor:
        """Return the numbers whose bits the codes are."""
        return codes.view(torch.float8_e4m3fn).float()

    def scale_count(self, shape: tuple[int, ...]) -> int:
        """Return 0."""
        return 0


@technique("e4m3")
@dataclass
class E4M3(Technique):
    """The head reads the embedding as it is trained, as in the record; fake_quant rounds matrices of the blocks."""

    source = "PR #640"
    effect = CHANGES_STORAGE
    phase = WEIGHTS  # the embedding is rounded before anything that other techniques do to it

    def number_format(self) -> Float8:
        """Return the format."""
        return Float8(self.name)

    def edit_model(self, model: GPT, cfg: Config) -> None:
        """Round what is looked up in the embedding, and the matrices that fake_quant leaves out, if stored so."""
        if self._stores("tok_emb.weight", model.tok_emb.weight, cfg):
            model.before_norm["add"].insert(0, rounded)
        for name, module in model.named_modules():
            left_out = isinstance(module, CastedLinear) and not name.startswith(("blocks.", "lm_head"))
            if left_out and self._stores(f"{name}.weight", module.weight, cfg):
                module.weight_edits.append(rounded)

    def _stores(self, name: str, weight: Tensor, cfg: Config) -> bool:
        return storage_of(name, weight, cfg.quant, cfg.tech).format == self.name
