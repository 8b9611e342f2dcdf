"""Orthogonal initialisation of every matrix that is large enough, with a switch for output projections."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from golf.settings.config import Config
from golf.settings.fields import later, one_of
from golf.training.model.gpt import GPT
from golf.training.model.layers import CastedLinear
from golf.training.techniques.base import CHANGES_INIT, INITIAL_VALUES, Technique, technique


@technique("ortho_init")
@dataclass
class OrthoInit(Technique):
    """`proj_init` decides on the output projections of attention and MLP, which start at zero without this technique:
    `zero`, orthogonal times 1/√(2L), or torch's default. (Public scripts announce the second and do the first.)

    Projections of embeddings (bigram, value embeddings) are orthogonal times 1/√(2L), or 1 with `embed_proj_gain=one`
    as in the scripts with parameter banks and in the records 2026-04-01, 04-03 and 04-04.
    """

    effect = CHANGES_INIT
    source = "public 11-layer records; PR #1559"
    phase = INITIAL_VALUES  # sees the matrices of all techniques

    proj_init: str = one_of("zero", "ortho_depth_scaled", "default")
    min_dim: int = 64  # a matrix with a smaller side keeps its own initialisation
    embed_proj_gain: str = later(one_of("depth_scaled", "one"))  # gain of the projections of embeddings

    def edit_model(self, model: GPT, cfg: Config) -> None:
        depth_scale = (2 * cfg.model.num_layers) ** -0.5
        embed_proj_gain = 1.0 if self.embed_proj_gain == "one" else depth_scale
        for name, module in model.named_modules():
            if not isinstance(module, CastedLinear):
                continue
            is_proj = name.endswith("proj")
            if module.zero_init and is_proj:
                self._init_output(module, depth_scale)
            elif not module.zero_init and min(module.weight.shape) >= self.min_dim:
                nn.init.orthogonal_(module.weight, gain=embed_proj_gain if is_proj else 1.0)

    def _init_output(self, module: CastedLinear, depth_scale: float) -> None:
        if self.proj_init == "default":
            module.reset_parameters()
        elif self.proj_init == "ortho_depth_scaled" and min(module.weight.shape) >= self.min_dim:
            nn.init.orthogonal_(module.weight, gain=depth_scale)
