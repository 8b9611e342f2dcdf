"""Parameter groups: every parameter belongs to exactly one optimizer, or construction fails."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from golf.errors import GolfError
from golf.settings.config import Config, OptimConfig, changes_steps, techniques
from golf.training.model.layers import embed_dtype
from golf.training.optim.adam import Adam, AdamWithMoments
from golf.training.optim.clipping import scale_to_norm, squared_norm
from golf.training.optim.matrices import declared_row_counts
from golf.training.optim.muon import Muon
from golf.training.optim.parallel_muon import ParallelMuon
from golf.training.optim.rules import GroupOptimizer, optimizers_of_groups, ruled
from golf.training.ranks import ALONE, Ranks

BASELINE_MATRICES = re.compile(r"blocks\.\d+\.(attn\.(c_q|c_k|c_v|proj)|mlp\.(fc|proj))\.weight")
BASELINE_SCALARS = re.compile(r"skip_weights|blocks\.\d+\.(attn_scale|mlp_scale|resid_mix|attn\.q_gain)")


def group_of(name: str, param: torch.Tensor, selected: Sequence[Any] = ()) -> str:
    """Return `embed`, `head`, `matrix` or `scalar`. Raises `GolfError` for a parameter without a group.

    `selected` are the techniques of the run. They name the groups of their own parameters.
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
        f"Parameter {name} {tuple(param.shape)} belongs to no optimizer group: the technique that made it "
        f"({' or '.join(t.name for t in selected) or 'it is not selected'}) has to list it in groups."
    )


def group_parameters(model: nn.Module, selected: Sequence[Any] = ()) -> dict[str, list[nn.Parameter]]:
    """Return the parameters of `model` by group, in the order of `named_parameters`."""
    groups: dict[str, list[nn.Parameter]] = {"embed": [], "head": [], "matrix": [], "scalar": []}
    for name, param in model.named_parameters():
        groups[group_of(name, param, selected)].append(param)
    return groups


class Optimizer:
    """Muon on the matrices and Adam on the rest, stepped as one."""

    muon_is_replaced = False  # the last of `adams` has the matrices

    def __init__(self, muon: Muon | ParallelMuon, adams: Sequence[GroupOptimizer]):
        self.muon, self.adams = muon, adams
        self._decays = [adam.weight_decay for adam in adams]

    def step(self, lr_multiplier: float = 1.0, momentum: float = 0.95) -> None:
        """Update every parameter. `lr_multiplier` scales all base learning rates, `momentum` is Muon's."""
        self.reduce_gradients()
        # Adam first: Muon's gradients may still be on their way between ranks.
        for adam in self.adams:
            adam.step(lr_multiplier)
        self.muon.step(lr_multiplier, momentum)

    def reduce_gradients(self) -> None:
        self.muon.start_reducing([p for adam in self.adams for p in adam.params])

    def set_decays(self, muon: float, factor: float) -> None:
        """Let all weight decays be `factor` times their own, and that of the matrices `factor` times `muon`."""
        self.muon.weight_decay = muon * factor
        for adam, decay in zip(self.adams, self._decays, strict=True):
            adam.weight_decay = decay * factor
        if self.muon_is_replaced:
            self.adams[-1].weight_decay = muon * factor

    def zero_grad(self) -> None:
        self.muon.zero_grad()
        for adam in self.adams:
            for param in adam.params:
                # None and not zeros, so that Adam passes over parameters that the next step does not use.
                param.grad = None

    def parts(self) -> list[Muon | ParallelMuon | GroupOptimizer]:
        """Return the optimizers, each with its `params` and its base `lr`."""
        return [self.muon, *self.adams]

    def parameters(self) -> Iterator[nn.Parameter]:
        for part in self.parts():
            yield from part.params

    def state_dict(self) -> dict:
        return {"muon": self.muon.state_dict(), "adams": [adam.state_dict() for adam in self.adams]}

    def load_state_dict(self, state: dict) -> None:
        self.muon.load_state_dict(state["muon"])
        for adam, adam_state in zip(self.adams, state["adams"], strict=True):
            adam.load_state_dict(adam_state)


class ClippedOptimizer(Optimizer):
    """An optimizer that scales all gradients together down to norm `clip_norm`.

    `own_norm` lets each rank clip its own gradients before the reduction over ranks.
    """

    def __init__(
        self, muon: Muon | ParallelMuon, adams: Sequence[GroupOptimizer], clip_norm: float, *, own_norm: bool = False
    ):
        super().__init__(muon, adams)
        self.clip_norm, self.own_norm = clip_norm, own_norm

    def reduce_gradients(self) -> None:
        if self.own_norm:
            own = [p.grad for p in self.parameters() if p.grad is not None]
            scale_to_norm(own, squared_norm(own, own[0].device), self.clip_norm)
        super().reduce_gradients()
        # The norm of the averaged gradients is known behind the reduction alone.
        if not self.own_norm:
            self._clip()

    @torch.no_grad()
    def _clip(self) -> None:
        rest = [p.grad for adam in self.adams for p in adam.params if p.grad is not None]
        # Muon's part may be spread over the ranks, and it sums that itself. Adam's gradients are equal on every rank
        # and must be counted once.
        squared = self.muon.squared_norm()
        scale_to_norm([*self.muon.gradients(), *rest], squared + squared_norm(rest, squared.device), self.clip_norm)


def build_optimizer(cfg: Config, model: nn.Module, ranks: Ranks = ALONE) -> Optimizer:
    """Build the optimizer of `cfg` over `model`, which has to be on its final device already."""
    o, groups = cfg.optim, group_parameters(model, techniques(cfg))
    lrs = {
        # As in the public baseline, an embedding that is the head, too, has a learning rate of its own.
        "embed": o.tied_embed_lr if cfg.model.tie_embeddings else o.embed_lr,
        "head": o.head_lr,
        "scalar": o.scalar_lr,
    }
    decays = {
        "embed": o.adam_wd if o.embed_wd is None else o.embed_wd,
        "head": o.adam_wd if o.head_wd is None else o.head_wd,
        "scalar": o.adam_wd,
    }
    # A tied model has no parameter in the group `head`.
    adams: list[Any] = [_build_adam(o, groups[name], lr, decays[name]) for name, lr in lrs.items() if groups[name]]
    form: type = ParallelMuon if o.muon == "parallel" else Muon
    if changes_steps(cfg):
        form = ruled(form, techniques(cfg), cfg)
        makers = optimizers_of_groups(techniques(cfg), cfg)
        names = [name for name in lrs if groups[name]]
        adams = [
            makers[name](adam.params, adam.lr, adam.weight_decay) if name in makers else adam
            for name, adam in zip(names, adams, strict=True)
        ]
        if "matrix" in makers:
            # Muon is left with no matrix.
            adams.append(makers["matrix"](groups["matrix"], o.matrix_lr, o.muon_wd))
            groups["matrix"] = []
    # Modules of techniques alone store several matrices in one parameter.
    row_counts = declared_row_counts(model) if cfg.tech else None
    muon = form(groups["matrix"], o, ranks=ranks, row_counts=row_counts)
    made = (
        ClippedOptimizer(muon, adams, o.grad_clip_norm, own_norm=o.clip_before_reduction)
        if o.grad_clip_norm > 0
        else Optimizer(muon, adams)
    )
    if changes_steps(cfg):
        made.muon_is_replaced = "matrix" in makers
    return made


def _build_adam(o: OptimConfig, params: list[nn.Parameter], lr: float, weight_decay: float) -> Adam:
    betas = (o.beta1, o.beta2)
    if o.adam_moment_dtype == "parameter":
        return Adam(params, lr=lr, betas=betas, eps=o.adam_eps, weight_decay=weight_decay)
    moments = embed_dtype(o.adam_moment_dtype)
    return AdamWithMoments(params, moments, lr=lr, betas=betas, eps=o.adam_eps, weight_decay=weight_decay)
