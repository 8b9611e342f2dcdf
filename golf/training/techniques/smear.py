"""SmearGate: each token's embedding mixed with its predecessor's, by a learned gate per channel."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from golf.errors import GolfError
from golf.settings.config import Config
from golf.training.model.gpt import GPT
from golf.training.techniques.base import Technique, technique

FORMS = {"blend": 0.0, "keep": 3.0}  # form → initial value of the gate's parameter


class SmearGate(nn.Module):
    """`blend`: (1-g)·x + g·x₋₁; `keep`: g·x + (1-g)·x₋₁, with g = σ(gate) and zeros before the first token."""

    def __init__(self, dim: int, form: str, bos_id: int | None):
        super().__init__()
        self.form, self.bos_id = form, bos_id
        self.gate = nn.Parameter(torch.full((dim,), FORMS[form]))

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        """Mix `x` `[B, T, d]`; with `mask_bos`, a BOS token gets nothing from the document before it."""
        previous = F.pad(x[:, :-1], (0, 0, 1, 0))
        if self.bos_id is not None:
            previous = previous * (ids != self.bos_id)[..., None].to(x.dtype)
        g = torch.sigmoid(self.gate.to(x.dtype))
        return (1 - g) * x + g * previous if self.form == "blend" else g * x + (1 - g) * previous


@technique("smear")
@dataclass
class Smear(Technique):
    """Two public conventions: `blend` after the first norm, half and half at the start; `keep` before it."""

    source = "PR #65 (keep); PR #162 (blend); masking at document starts PR #1851"
    groups = (("smear.gate", "scalar"),)
    control_names = ("smear",)

    form: str = "blend"
    mask_bos: bool = False  # False leaks across documents, as upstream does until PR #1851
    bos_id: int = 1

    def check(self, cfg: Config) -> None:
        if self.form not in FORMS:
            raise GolfError(f"tech.smear.form={self.form} is not known: choose one of {', '.join(FORMS)}.")

    def warnings(self, cfg: Config) -> list[str]:
        if self.mask_bos:
            return []
        return ["smear mixes the last token of a document into the next one's start; tech.smear.mask_bos=true does not"]

    def separates_documents(self) -> bool:
        return self.mask_bos

    def edit_model(self, model: GPT, cfg: Config) -> None:
        model.smear = SmearGate(cfg.model.model_dim, self.form, self.bos_id if self.mask_bos else None)
        (model.after_norm if self.form == "blend" else model.before_norm).append(model.smear)
