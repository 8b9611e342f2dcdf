"""Attention and MLP in parallel from a layer on: beside each other on one stream, or on two lanes that meet again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from golf.errors import GolfError
from golf.registry import Variable
from golf.settings.config import Config
from golf.settings.fields import one_of
from golf.training.model.build import routes_of
from golf.training.model.gpt import GPT, Block, State, Stream
from golf.training.model.layers import Context
from golf.training.model.slots import set_slot
from golf.training.techniques.base import Technique, technique

KEPT_INIT = {"crossed": 1.1, "crossed_in_turn": 1.1**0.5}  # ρ at the start: 1.1 a layer


class Lanes(NamedTuple):
    """The residual stream in two: attention reads the first, the MLP the second; both `[B, T, d]`."""

    attention: Tensor
    mlp: Tensor


def side_by_side(block: Block, x: Tensor, context: Context) -> Tensor:
    """Return u + a⊙Attn(n(u)) + b⊙MLP(n(u)) with u the stream mixed with the embedding output."""
    u = block.mix(x, context)
    x = torch.addcmul(u, block.attn_scale.to(x.dtype), block.attend(u, context))
    return torch.addcmul(x, block.mlp_scale.to(x.dtype), block.feed(u, context))


def separate(block: Block, lanes: Lanes, context: Context) -> Lanes:
    """Return A' + a⊙Attn(n(A')) and M + b⊙MLP(n(M)), with A' the lane A mixed with the embedding output."""
    a = block.mix(lanes.attention, context)
    dtype = a.dtype
    return Lanes(
        torch.addcmul(a, block.attn_scale.to(dtype), block.attend(a, context)),
        torch.addcmul(lanes.mlp, block.mlp_scale.to(dtype), block.feed(lanes.mlp, context)),
    )


def crossed(block: Block, lanes: Lanes, context: Context, written: Tensor, kept: Tensor) -> Lanes:
    """Let attention and MLP read their lanes, and then both write to both: `written` `[2, 2]`, `kept` `[2]`."""
    dtype = lanes.mlp.dtype
    attended = block.attn_scale.to(dtype) * block.attend(block.mix(lanes.attention, context), context)
    fed = block.mlp_scale.to(dtype) * block.feed(lanes.mlp, context)
    return Lanes(*(kept[i] * lanes[i] + written[0, i] * attended + written[1, i] * fed for i in range(2)))


def crossed_in_turn(block: Block, lanes: Lanes, context: Context, written: Tensor, kept: Tensor) -> Lanes:
    """Let the attention write to both lanes before the MLP reads its own, with `kept[i]` the factor at either write."""
    dtype = lanes.mlp.dtype
    attended = block.attn_scale.to(dtype) * block.attend(block.mix(lanes.attention, context), context)
    lanes = Lanes(*(kept[0] * lanes[i] + written[0, i] * attended for i in range(2)))
    fed = block.mlp_scale.to(dtype) * block.feed(block.mix(lanes.mlp, context), context)
    return Lanes(*(kept[1] * lanes[i] + written[1, i] * fed for i in range(2)))


@dataclass(frozen=True)
class LaneStream(Stream):
    """One tensor up to layer `first`, two lanes from there on. Skips join the attention's lane, or both lanes."""

    form: str
    first: int

    def visit(self, model: GPT, x: State, skip: State | None, context: Context) -> State:
        visit = context.visit
        if visit.block < self.first:
            return super().visit(model, x, skip, context)
        if skip is not None and self.form == "separate" and not isinstance(x, Lanes):
            # This form alone splits the stream behind its first skip, so that both lanes have it.
            x, skip = model.join_skip(model, x, skip, visit.row), None
        lanes = x if isinstance(x, Lanes) else Lanes(x, x)
        if skip is not None:
            joined = model.join_skip(model, lanes.attention, skip, visit.row)
            both = self.form == "crossed_in_turn"
            lanes = Lanes(joined, model.join_skip(model, lanes.mlp, skip, visit.row) if both else lanes.mlp)
        return model.run_block(lanes, context, *self._weights(model, visit.block, lanes.mlp.dtype))

    def _weights(self, model: GPT, block: int, dtype: torch.dtype) -> list[Tensor]:
        if self.form == "separate":
            return []
        return [w[block - self.first].to(dtype) for w in (model.parallel_post_lambdas, model.parallel_resid_lambdas)]

    def end(self, model: GPT, x: State) -> Tensor:
        if self.form != "separate":
            return 0.5 * (x.attention + x.mlp)
        return torch.lerp(x.mlp, x.attention, model.lane_merge.to(x.mlp.dtype))


@technique("parallel_lanes")
@dataclass
class ParallelLanes(Technique):
    """Four formulas that the public records all call parallel residual.

    `side_by_side` has one stream and no parameters. The others run the layers from `first` on over two lanes, A for the
    attention and M for the MLP, which both start as the stream.

    | form | attention and MLP | skips join | end | record |
    |---|---|---|---|---|
    | `side_by_side` | read one input, as in GPT-J | the stream | | 04-06 (HessianSDClip), 04-09 (both) |
    | `separate` | read and write their own lane only | A, the first one both | μA + (1-μ)M | 04-04, 04-08 |
    | `crossed` | read their lanes, then write to both | A | mean | 04-10 to 04-29 |
    | `crossed_in_turn` | as crossed, attention writes before the MLP reads | A and M | mean | 03-31 |

    Crossed forms learn what is written, λ `[2, 2]` a layer, and what is kept, ρ `[2]`. The record of 04-04 forgets the
    skips within its lanes but for the first; here they are joined as in 04-08. Public scripts keep λ and ρ for layers
    without lanes, too.
    """

    source = "PR #1204 (crossed_in_turn), PR #1412 (side_by_side), PR #1530 (crossed); record 2026-04-08 (separate)"
    variables = (
        Variable("PARALLEL_RESIDUAL_START", lambda value: {"form": "side_by_side", "first": value}, selects=True),
        Variable("PARALLEL_RESIDUAL", lambda value: {"form": "crossed_in_turn"}, selects=True),
        Variable("PARALLEL_START_LAYER", "first"),
    )
    groups = (("parallel_*_lambdas", "scalar"), ("lane_merge", "scalar"))
    control_names = ("parallel_post_lambdas", "parallel_resid_lambdas", "lane_merge")

    form: str = one_of("side_by_side", "separate", "crossed", "crossed_in_turn")
    first: int = -4  # first layer of this form, from 0; negative = counted from the end

    def check(self, cfg: Config) -> None:
        layers = cfg.model.num_layers
        if not -layers <= self.first < layers:
            raise GolfError(f"tech.parallel_lanes.first={self.first}, but the model has layers 0 to {layers - 1}.")
        # One stream has no lanes that could begin or end at a wrong place.
        if self.form == "side_by_side":
            return
        first = self.first % layers
        if first == layers - 1:
            raise GolfError(
                f"tech.parallel_lanes.form={self.form} needs at least two layers in lanes, and the last one alone is "
                f"none: set tech.parallel_lanes.first to at most {layers - 2}, or form=side_by_side."
            )
        routes = routes_of(cfg)
        for route in (routes.plain, *routes.late.values()):
            # A stream that is two lanes cannot go back to layers that read one.
            entered = next(i for i, visit in enumerate(route) if visit.block >= first)
            if any(visit.stores or visit.block < first for visit in route[entered:]):
                raise GolfError(
                    f"Lanes last to the end, and from layer {first} on a U-net skip starts or a loop goes back to an "
                    "earlier layer: set tech.parallel_lanes.first to a later layer, or form=side_by_side."
                )

    def edit_model(self, model: GPT, cfg: Config) -> None:
        first = self.first % cfg.model.num_layers
        for block in list(model.blocks)[first:]:
            set_slot(block, "meet", self._meeting(), self.name)
        if self.form == "side_by_side":
            return
        set_slot(model, "stream", LaneStream(self.form, first), self.name)
        if self.form == "separate":
            model.lane_merge = nn.Parameter(torch.tensor(0.5))
        else:
            layers = cfg.model.num_layers - first
            model.parallel_post_lambdas = nn.Parameter(torch.ones(layers, 2, 2))
            model.parallel_resid_lambdas = nn.Parameter(torch.full((layers, 2), KEPT_INIT[self.form]))

    def _meeting(self) -> Callable[..., State]:
        if self.form == "side_by_side":
            return side_by_side
        if self.form == "separate":
            return separate
        return crossed if self.form == "crossed" else crossed_in_turn
