"""Layers without attention: the MLP alone, on the stream mixed with the embedding output."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from golf.errors import GolfError
from golf.registry import Variable
from golf.settings.config import Config
from golf.training.model.build import routes_of
from golf.training.model.gpt import GPT, Block
from golf.training.model.layers import Context
from golf.training.model.slots import set_slot
from golf.training.techniques.base import WEIGHTS, Technique, technique
from golf.words import counted


def mlp_alone(block: Block, x: Tensor, context: Context) -> Tensor:
    """Return u + b⊙MLP(n(u)) `[B, T, d]` with u the stream mixed with the embedding output."""
    u = block.mix(x, context)
    return torch.addcmul(u, block.mlp_scale.to(u.dtype), block.feed(u, context))


@technique("no_attention")
@dataclass
class NoAttention(Technique):
    """The attention of `layers` is taken out with its matrices. The public script keeps them, but not in its file."""

    source = "record 2026-03-31_ParallelResiduals_MiniDepthRecurrence (PR #1204)"
    variables = (Variable("DISABLE_LAYER0_ATTN", selects=True),)
    # Last, because other techniques edit the attention of every layer.
    phase = WEIGHTS
    # The first takes the values of the first layer into all others.
    conflicts = ("value_residual",)

    layers: list[int] = field(default_factory=lambda: [0])  # layers from 0, or from the end if negative

    def check(self, cfg: Config) -> None:
        count = cfg.model.num_layers
        if wrong := [layer for layer in self.layers if not -count <= layer < count]:
            raise GolfError(
                f"tech.no_attention.layers names layer {wrong[0]}, but the model has {counted(count, 'layer')}."
            )
        gone = {layer % count for layer in self.layers}
        if not self.layers or len(gone) < len(self.layers) or len(gone) == count:
            raise GolfError(
                f"tech.no_attention.layers={self.layers} has to name different layers, at least one and not all."
            )
        values = cfg.tech.get("value_embed")
        if values is not None and gone & {layer % count for layer in values.layers}:
            raise GolfError("value_embed adds to the values of a layer without attention: leave it out of its layers.")
        if cfg.eval.ttt.method == "lora" and {"q", "k", "v", "o"} & set(cfg.eval.ttt.lora_targets):
            raise GolfError(
                "eval.ttt.method=lora adapts the attention of every layer, and no_attention takes some out: set "
                "eval.ttt.lora_targets=[mlp,head] or eval.ttt.method=sgd."
            )
        for route in routes_of(cfg).late.values():
            if any(v.controls is not None and (v.block in gone) != (v.controls in gone) for v in route):
                raise GolfError(
                    "tech.recurrence.controls=by_visit gives the gains of a layer without attention to one with it: "
                    "name only layers before the loop, or use controls=by_layer."
                )

    def edit_model(self, model: GPT, cfg: Config) -> None:
        for layer in self.layers:
            block = model.blocks[layer]
            set_slot(block, "meet", mlp_alone, self.name)
            del block.attn, block.attn_scale
