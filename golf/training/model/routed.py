"""A GPT that visits its blocks in another order than once each, which may change during training.

A technique with `routes` asks for it. A later visit may have an MLP, control vectors and skip weights of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from golf.settings.config import ModelConfig
from golf.training.model.attention import CausalSelfAttention
from golf.training.model.gpt import GPT, Block, State
from golf.training.model.layers import Context
from golf.training.model.route import Route, Routes


class RoutedAttention(CausalSelfAttention):
    """Attention by the matrices of the layer that is visited, with the gains, norms and hooks of this one."""

    def layer(self, context: Context) -> CausalSelfAttention:
        """Return the attention whose matrices are used."""
        return context.layer.attn if context.layer else self


class RoutedBlock(Block):
    """A block that may be visited several times. `further_mlps` are those of later visits, which else share `mlp`."""

    def __init__(self, cfg: ModelConfig):
        super().__init__(cfg, RoutedAttention)
        self.further_mlps = nn.ModuleList()

    def forward(self, x: State, context: Context, *weights: Tensor) -> State:
        """Return the stream after the visited layer, with the control vectors, norms and hooks of this block."""
        return (context.layer or self).meet(self, x, context, *weights)

    def feed(self, x: Tensor, context: Context) -> Tensor:
        """Return the output `[B, T, d]` of the visit's MLP for `x`, before `mlp_scale`."""
        layer, repeat = context.layer or self, context.visit.occurrence
        mlp = layer.further_mlps[repeat - 1] if repeat and layer.further_mlps else layer.mlp
        return mlp(self.mlp_norm(x), context.active)

    def mlps(self) -> list[nn.Module]:
        """Return the MLP of the first visit in a pass, and those of later visits that have their own."""
        return [self.mlp, *self.further_mlps]


def controls_alone(cfg: ModelConfig) -> RoutedBlock:
    """Return a block without matrices: control vectors, norms and hooks for a visit that has its own."""
    block = RoutedBlock(cfg)
    del block.mlp, block.attn.c_q, block.attn.c_k, block.attn.c_v, block.attn.proj
    return block


class RoutedGPT(GPT):
    """A GPT over `routes`. `late_controls` belong to visits beyond the number of blocks."""

    def __init__(self, cfg: ModelConfig, routes: Routes):
        # Known to the methods that the constructor below calls.
        self.routes, self.has_late_rows = routes, routes.late_rows_apart
        # A number, because compilers would trace the search for it.
        self.early_rows = routes.early_rows
        super().__init__(cfg)

    def add_blocks(self) -> None:
        """Add the blocks, and the control vectors of visits beyond their number."""
        self.blocks = nn.ModuleList(RoutedBlock(self.cfg) for _ in range(self.cfg.num_layers))
        self.late_controls = nn.ModuleList(controls_alone(self.cfg) for _ in range(self.routes.control_sets))

    def add_skip_rows(self, name: str, value: float) -> None:
        """Add the parameter `name` `[joins, d]`; rows that only late routes use may be a parameter of their own."""
        rows, late = self.early_rows, self.routes.skip_rows - self.early_rows
        self.register_parameter(name, nn.Parameter(torch.full((rows, self.cfg.model_dim), value)))
        if self.routes.late_rows_apart and late > 0:
            # Without a gradient until the loop is on, so that Adam leaves it alone.
            self.register_parameter(f"late_{name}", nn.Parameter(torch.full((late, self.cfg.model_dim), value)))

    def skip_row(self, name: str, row: int) -> Tensor:
        """Return a row `[d]` of a parameter that `add_skip_rows` added."""
        if self.routes.late_rows_apart and row >= self.early_rows:
            return getattr(self, f"late_{name}")[row - self.early_rows]
        return super().skip_row(name, row)

    @property
    def controls(self) -> list[Block]:
        """Return the modules whose control vectors, norms and hooks the visits use: the blocks, and those beyond."""
        return [*self.blocks, *self.late_controls]

    def route_when(self, active: Sequence[str]) -> Route:
        """Return the order of the blocks while the late switches `active` are on."""
        return self.routes.when(active)

    def run_block(self, x: State, context: Context, *weights: Tensor) -> State:
        """Return the stream after the layer of `context.visit`, which may have another block's control vectors."""
        visit = context.visit
        if visit.controls is None:
            return super().run_block(x, context, *weights)
        return self.controls[visit.controls](x, context._replace(layer=self.blocks[visit.block]), *weights)
