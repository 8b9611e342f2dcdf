"""Which optimizer updates which parameter: exactly one for each, or an error."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from golf.config import Config
from golf.errors import GolfError
from golf.model.layers import embed_dtype
from golf.model.names import is_control
from golf.optim.adam import Adam
from golf.optim.muon import Muon


def group_of(name: str, param: torch.Tensor) -> str:
    """`embed`, `head`, `matrix` or `scalar`; raises `GolfError` for a parameter that no rule knows."""
    if name == "tok_emb.weight":
        return "embed"
    if name == "lm_head.weight":
        return "head"
    if param.ndim < 2 or is_control(name):
        return "scalar"
    if param.ndim == 2 and name.startswith("blocks."):
        return "matrix"
    raise GolfError(
        f"Parameter {name} {tuple(param.shape)} belongs to no optimizer group: add a rule to optim/groups.py."
    )


def group_parameters(model: nn.Module) -> dict[str, list[nn.Parameter]]:
    """Parameters of `model` by group, in the order of `named_parameters`."""
    groups: dict[str, list[nn.Parameter]] = {"embed": [], "head": [], "matrix": [], "scalar": []}
    for name, param in model.named_parameters():
        groups[group_of(name, param)].append(param)
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
    o, groups = cfg.optim, group_parameters(model)
    lrs = {
        "embed": o.tied_embed_lr if cfg.model.tie_embeddings else o.embed_lr,
        "head": o.head_lr,
        "scalar": o.scalar_lr,
    }
    decays = {
        "embed": o.adam_wd if o.embed_wd is None else o.embed_wd,
        "head": o.adam_wd if o.head_wd is None else o.head_wd,
        "scalar": o.adam_wd,
    }
    adams = [
        Adam(groups[name], lr=lr, betas=(o.beta1, o.beta2), eps=o.adam_eps, weight_decay=decays[name])
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
