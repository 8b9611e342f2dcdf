"""Which optimizer updates which parameter: exactly one for each, or an error."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from golf.config import Config, techniques
from golf.errors import GolfError
from golf.model.layers import embed_dtype
from golf.optim.adam import Adam
from golf.optim.muon import Muon

BASELINE_MATRICES = re.compile(r"blocks\.\d+\.(attn\.(c_q|c_k|c_v|proj)|mlp\.(fc|proj))\.weight")
BASELINE_SCALARS = re.compile(r"skip_weights|blocks\.\d+\.(attn_scale|mlp_scale|resid_mix|attn\.q_gain)")


def group_of(name: str, param: torch.Tensor, selected: Sequence[Any] = ()) -> str:
    """`embed`, `head`, `matrix` or `scalar`; raises `GolfError` for a parameter that nobody claims.

    `selected` are the techniques of the run, which say where their own parameters belong.
    """
    for technique in selected:
        if group := technique.group_of(name):
            return str(group)
    if name == "tok_emb.weight":
        return "embed"
    if name == "lm_head.weight":
        return "head"
    if BASELINE_SCALARS.fullmatch(name):
        return "scalar"
    if BASELINE_MATRICES.fullmatch(name):
        return "matrix"
    raise GolfError(
        f"Parameter {name} {tuple(param.shape)} belongs to no optimizer group: the technique that made it has "
        "to claim it in its `groups`."
    )


def group_parameters(model: nn.Module, selected: Sequence[Any] = ()) -> dict[str, list[nn.Parameter]]:
    """Parameters of `model` by group, in the order of `named_parameters`."""
    groups: dict[str, list[nn.Parameter]] = {"embed": [], "head": [], "matrix": [], "scalar": []}
    for name, param in model.named_parameters():
        groups[group_of(name, param, selected)].append(param)
    return groups


class Optimizer:
    """Muon on the matrices and Adam on the rest, stepped as one."""

    def __init__(self, muon: Muon, adams: list[Adam]):
        self.muon, self.adams = muon, adams

    def step(self, lr_multiplier: float = 1.0, momentum: float = 0.95) -> None:
        """Update every parameter; `lr_multiplier` scales all base learning rates, `momentum` is Muon's."""
        self.muon.step(lr_multiplier, momentum)
        for adam in self.adams:
            adam.step(lr_multiplier)

    def zero_grad(self) -> None:
        for param in self.parameters():
            param.grad = None

    def parameters(self) -> Iterator[nn.Parameter]:
        yield from self.muon.params
        for adam in self.adams:
            yield from adam.params

    def state_dict(self) -> dict:
        return {"muon": self.muon.state_dict(), "adams": [adam.state_dict() for adam in self.adams]}

    def load_state_dict(self, state: dict) -> None:
        self.muon.load_state_dict(state["muon"])
        for adam, adam_state in zip(self.adams, state["adams"], strict=True):
            adam.load_state_dict(adam_state)


def build_optimizer(cfg: Config, model: nn.Module, *, rank: int = 0, world_size: int = 1) -> Optimizer:
    """The optimizer of `cfg` over `model`, which has to be on its final device already."""
    o, groups = cfg.optim, group_parameters(model, techniques(cfg))
    embed_lr = o.tied_embed_lr if cfg.model.tie_embeddings else o.embed_lr
    lrs = {"embed": embed_lr, "head": o.head_lr, "scalar": o.scalar_lr}
    adams = [
        Adam(groups[name], lr=lr, betas=(o.beta1, o.beta2), eps=o.adam_eps, weight_decay=o.adam_wd)
        for name, lr in lrs.items()
        if groups[name]
    ]
    muon = Muon(
        groups["matrix"],
        lr=o.matrix_lr,
        backend_steps=o.muon_backend_steps,
        weight_decay=o.muon_wd,
        dtype=embed_dtype(o.muon_dtype),
        rank=rank,
        world_size=world_size,
    )
    return Optimizer(muon, adams)
