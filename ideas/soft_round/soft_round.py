"""Soft rounding: a differentiable rounding of the weights that sharpens as the learning rate falls."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from golf.artifact.quant.formats import QMAX, encode_integer
from golf.errors import GolfError
from golf.registry import Variable
from golf.run.progress import Progress
from golf.settings.config import Config, QuantConfig, TensorQuant, has_formats, tensor_classes
from golf.settings.fields import number
from golf.training.model.gpt import GPT
from golf.training.techniques.base import WEIGHTS, Technique, technique
from golf.training.techniques.fake_quant import coded_linears

ALPHA_START, ALPHA_RANGE = 1.0, 15.0


def soft_round(y: Tensor, alpha: Tensor) -> Tensor:
    """Return ⌊y⌋ + ½ + ½·tanh(α·r)/tanh(α/2) with r = y - ⌊y⌋ - ½: the identity for α → 0, rounding for α → ∞."""
    floor = y.floor()
    r = y - floor - 0.5
    return floor + 0.5 + 0.5 * torch.tanh(alpha * r) / torch.tanh(alpha / 2)


class Sharpness(nn.Module):
    """α as a buffer, so that compiled code reads it anew in every step."""

    def __init__(self) -> None:
        super().__init__()
        self.alpha: Tensor
        # Not persistent: a value of the schedule is no weight and has no place in the artifact.
        self.register_buffer("alpha", torch.tensor(ALPHA_START), persistent=False)


@dataclass(frozen=True)
class SoftRoundedWeight:
    """scale · clamp(s_α(w / scale)) with the export quantizer's row scale, which is not differentiated."""

    switch: str
    how: TensorQuant
    quant: QuantConfig
    sharpness: Sharpness

    def __call__(self, weight: Tensor, active: tuple[str, ...]) -> Tensor:
        if self.switch not in active:
            return weight
        qmax = QMAX[self.how.format]
        with torch.no_grad():
            # The scale is a constant here, as it is when the artifact is made.
            stored = encode_integer(weight, self.how, self.quant).scale
            assert stored is not None
            scale = stored.to(weight.dtype)[:, None]
        return scale * soft_round(weight / scale, self.sharpness.alpha).clamp(-qmax, qmax)


@technique("soft_round")
@dataclass
class SoftRound(Technique):
    """A switch that is on below `lr_threshold`; α = 1 + 15·(1 - multiplier / threshold)."""

    source = "PR #606, PR #670"
    variables = (
        Variable("SOFT_ROUND_QAT", selects=True),
        Variable("LATE_QAT_THRESHOLD", "lr_threshold"),
        Variable("QAT_THRESHOLD", "lr_threshold"),
    )
    is_switch = True
    phase = WEIGHTS
    conflicts = ("fake_quant",)

    lr_threshold: float = number(0.5, above=0, at_most=1)

    def check(self, cfg: Config) -> None:
        if rotated := [name for name, how in tensor_classes(cfg.quant).items() if how.rotation != "none"]:
            raise GolfError(
                f"soft_round rounds unrotated weights: set quant.{rotated[0]}.rotation=none or drop soft_round."
            )
        if has_formats(cfg.tech):
            raise GolfError(
                "soft_round rounds to integers, and a technique has another number format: drop one of them."
            )

    def edit_model(self, model: GPT, cfg: Config) -> None:
        model.soft_round = Sharpness()
        for linear, how in coded_linears(model, cfg).values():
            linear.weight_edits.append(SoftRoundedWeight(self.name, how, cfg.quant, model.soft_round))

    def is_on(self, progress: Progress) -> bool:
        return progress.lr_multiplier < self.lr_threshold

    def before_step(self, model: GPT, progress: Progress) -> None:
        annealed = 1 - min(progress.lr_multiplier / self.lr_threshold, 1.0)
        model.soft_round.alpha.fill_(ALPHA_START + ALPHA_RANGE * annealed)
