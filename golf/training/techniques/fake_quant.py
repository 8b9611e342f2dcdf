"""Training through the export quantizer: weights are rounded in the forward pass, gradients pass straight through."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from golf.artifact.quant.formats import FLOAT_DTYPES, Format, OwnFormat, decode, formats_of
from golf.artifact.quant.policy import storage_of
from golf.errors import GolfError
from golf.registry import Variable
from golf.run.progress import Progress
from golf.settings.config import Config, QuantConfig, TensorQuant
from golf.settings.fields import later, number, one_of
from golf.training.model.gpt import GPT
from golf.training.model.layers import CastedLinear
from golf.training.techniques.base import WEIGHTS, Technique, technique


def coded_linears(model: GPT, cfg: Config) -> dict[str, tuple[CastedLinear, TensorQuant]]:
    """Return the linear layers of blocks and untied head that the artifact stores as codes, with their settings.

    Embeddings and their projections are left out, as in the public scripts.
    """
    found = {}
    for name, module in model.named_modules():
        if isinstance(module, CastedLinear) and name.startswith(("blocks.", "lm_head")):
            how = storage_of(f"{name}.weight", module.weight, cfg.quant)
            if how.format not in FLOAT_DTYPES:
                found[name] = (module, how)
    return found


@dataclass(frozen=True)
class RoundedWeight:
    """The weight edit stopgrad(Q(w)) + w - stopgrad(w), with Q the artifact's quantizer: same clip, scale and codes.

    `how` may have another clip and floor than the artifact's.
    """

    switch: str
    form: Format | OwnFormat
    how: TensorQuant
    quant: QuantConfig

    def __call__(self, weight: Tensor, active: tuple[str, ...]) -> Tensor:
        if self.switch not in active:
            return weight
        with torch.no_grad():
            rounded = decode(self.form.encode(weight, self.how, self.quant))
        # Zero in the forward pass, to the bit; the gradient passes as if nothing had been rounded.
        return rounded + (weight - weight.detach())


@technique("fake_quant")
@dataclass
class FakeQuant(Technique):
    """A switch that is on from a fraction of the run, or below a learning-rate multiplier; by default from the start.

    By default a weight is rounded as the artifact rounds it. Five records of 2026-03-19 round in training by the row's
    own range (`scale_floor=eps`, in two of them `clip=max`) and have the floor of 1/qmax in the artifact alone.

    In the public scripts up to PR #593 this switch was folded away by the compiler and never did anything.
    """

    source = "PR #1559 (fraction), PR #374 (threshold)"
    variables = (
        Variable("QAT_ENABLED", selects=True),
        Variable("QAT_LAST_FRAC", lambda value: {"start_fraction": f"{1 - float(value):g}"}, selects=True),
    )
    is_switch = True
    phase = WEIGHTS
    conflicts = ("soft_round",)

    # fraction of the run at which it starts; QAT_LAST_FRAC=0.15 upstream is 0.85
    start_fraction: float | None = number(None, at_least=0, below=1)
    lr_threshold: float | None = number(None, above=0, at_most=1)  # learning-rate multiplier below which it is on
    clip: str = later(one_of("artifact", "max"))  # largest magnitude of a row: as in the artifact | the row's maximum
    scale_floor: str = later(one_of("artifact", "one_over_qmax", "eps"))  # lower bound of a row's scale

    def check(self, cfg: Config) -> None:
        if self.start_fraction is not None and self.lr_threshold is not None:
            raise GolfError("tech.fake_quant starts by start_fraction or by lr_threshold: give one of them.")

    def edit_model(self, model: GPT, cfg: Config) -> None:
        formats = formats_of(cfg.tech)
        for linear, how in coded_linears(model, cfg).values():
            form = formats[how.format]
            linear.weight_edits.append(RoundedWeight(self.name, form, self._in_training(how), cfg.quant))

    def _in_training(self, how: TensorQuant) -> TensorQuant:
        """Return the settings by which a weight is rounded in training, given those of the artifact."""
        if self.clip == "max":
            # The quantile of 1 is the row's largest magnitude.
            how = dataclasses.replace(how, clip="quantile", clip_quantile=1.0)
        if self.scale_floor != "artifact":
            how = dataclasses.replace(how, scale_floor=self.scale_floor)
        return how

    def is_on(self, progress: Progress) -> bool:
        if self.lr_threshold is not None:
            return progress.lr_multiplier < self.lr_threshold
        return progress.fraction >= (self.start_fraction or 0.0)
