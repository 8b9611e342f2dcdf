"""SmearGate: each token's embedding mixed with its predecessor's, by a learned gate per channel."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from golf.errors import GolfError
from golf.registry import Variable
from golf.settings.config import Config
from golf.settings.fields import later, number, one_of
from golf.training.model.gpt import GPT
from golf.training.techniques.base import Technique, technique

START = {"blend": 0.0, "keep": 3.0}  # form with a gate per channel → initial value of the gate's parameter


def previous_tokens(x: Tensor, ids: Tensor, bos_id: int | None) -> Tensor:
    """Return `x` `[B, T, d]` of the token before each: zeros before the first one, and before those of `bos_id`."""
    previous = F.pad(x[:, :-1], (0, 0, 1, 0))
    return previous if bos_id is None else previous * (ids != bos_id)[..., None].to(x.dtype)


class WindowedSmear(nn.Module):
    """x + λ·σ(w·x[:window])·x₋₁ with one gate for all channels. λ and w start at zero, so that it starts as nothing."""

    def __init__(self, window: int, bos_id: int | None):
        super().__init__()
        self.bos_id = bos_id
        self.gate = nn.Linear(window, 1, bias=False)
        nn.init.zeros_(self.gate.weight)
        # While it is zero, it alone has a gradient, and the gate begins to learn one step later.
        self.strength = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        """Mix `x` `[B, T, d]`; with `mask_bos`, a BOS token gets nothing from the document before it."""
        gate = torch.sigmoid(F.linear(x[..., : self.gate.in_features], self.gate.weight.to(x.dtype)))
        return x + self.strength.to(x.dtype) * gate * previous_tokens(x, ids, self.bos_id)


class SmearGate(nn.Module):
    """`blend`: (1-g)·x + g·x₋₁; `keep`: g·x + (1-g)·x₋₁, with g = σ(gate) and zeros before the first token."""

    def __init__(self, dim: int, form: str, bos_id: int | None):
        super().__init__()
        self.form, self.bos_id = form, bos_id
        self.gate = nn.Parameter(torch.full((dim,), START[form]))

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        """Mix `x` `[B, T, d]`; with `mask_bos`, a BOS token gets nothing from the document before it."""
        previous = previous_tokens(x, ids, self.bos_id)
        g = torch.sigmoid(self.gate.to(x.dtype))
        return (1 - g) * x + g * previous if self.form == "blend" else g * x + (1 - g) * previous


@technique("smear")
@dataclass
class Smear(Technique):
    """Three public conventions: `blend` after the first norm, half and half at the start; `keep` before it; `add`
    before it, by a gate that reads `window` channels (record 2026-04-16; with `mask_bos` those from 2026-04-27 on).
    """

    source = "PR #65 (keep); PR #162 (blend); record 2026-04-16 (add); masking at document starts PR #1851"
    variables = (
        Variable("USE_SMEARGATE", lambda value: {"form": "keep"}, selects=True),
        Variable("SMEAR_GATE", lambda value: {"form": "add"}, selects=True),
        Variable("SMEAR_GATE_ENABLED", lambda value: {"form": "add", "mask_bos": "true"}, selects=True),
        Variable("SMEAR_GATE_WIDTH", "window"),
        Variable("GATE_WINDOW", "window"),
    )
    groups = (("smear.gate", "scalar"), ("smear.gate.weight", "scalar"), ("smear.strength", "scalar"))
    control_names = ("smear.*",)

    form: str = one_of("blend", "keep", "add")
    mask_bos: bool = False  # False leaks across documents, as upstream does until PR #1851
    bos_id: int = 1
    window: int = later(number(12, at_least=1))  # form=add: channels that the gate reads, from the first on

    def check(self, cfg: Config) -> None:
        if self.form == "add" and self.window > cfg.model.model_dim:
            raise GolfError(
                f"tech.smear.window={self.window} is wider than the model's {cfg.model.model_dim} channels: "
                "choose a smaller one."
            )

    def warnings(self, cfg: Config) -> list[str]:
        if self.mask_bos:
            return []
        return ["smear mixes the last token of a document into the next one's start; tech.smear.mask_bos=true does not"]

    def separates_documents(self) -> bool:
        return self.mask_bos

    def edit_model(self, model: GPT, cfg: Config) -> None:
        bos_id = self.bos_id if self.mask_bos else None
        if self.form == "add":
            model.smear = WindowedSmear(self.window, bos_id)
        else:
            model.smear = SmearGate(cfg.model.model_dim, self.form, bos_id)
        (model.after_norm if self.form == "blend" else model.before_norm)["mix"].append(model.smear)
