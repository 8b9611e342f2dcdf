"""MLPs of their own for the repeated visits of a loop, which start as copies of the layer's MLP."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch

from golf.errors import GolfError
from golf.registry import Variable
from golf.settings.config import Config
from golf.training.model.build import routes_of
from golf.training.model.gpt import GPT
from golf.training.model.routed import RoutedBlock
from golf.training.techniques.base import STORAGE, Technique, technique


@technique("untied_mlps")
@dataclass
class UntiedMLPs(Technique):
    """The second and later visits of a looped layer have an MLP of their own; attention stays shared.

    When the loop starts, each takes over the weights that the layer's MLP has then. Until then it has no gradient.
    """

    source = "record 2026-03-31_ParallelResiduals_MiniDepthRecurrence (PR #1204)"
    variables = (Variable("REPEAT_UNTIE_MLP", selects=True),)
    # Sees the initial weights of all parts, which a loop from the first step on starts with.
    phase = STORAGE
    requires = ("recurrence",)
    groups = (("blocks.*.further_mlps.*.weight", "matrix"),)

    def check(self, cfg: Config) -> None:
        if cfg.tech["recurrence"].full_at is not None:
            raise GolfError("untied_mlps copies MLPs once, as the loop starts: set tech.recurrence.full_at=null.")

    def edit_model(self, model: GPT, cfg: Config) -> None:
        late = routes_of(cfg).late["recurrence"]
        for number, block in enumerate(model.blocks):
            repeats = max(visit.occurrence for visit in late if visit.block == number)
            block.further_mlps.extend(copy.deepcopy(block.mlp) for _ in range(repeats))

    @torch.no_grad()
    def at_switch(self, model: GPT, names: tuple[str, ...]) -> None:
        if "recurrence" in names:
            for block in model.blocks:
                copy_mlp(block)


def copy_mlp(block: RoutedBlock) -> None:
    """Give the further MLPs of `block` the weights of its first."""
    for mlp in block.further_mlps:
        for own, first in zip(mlp.parameters(), block.mlp.parameters(), strict=True):
            # In place, because an optimizer holds the parameters.
            own.copy_(first)
