"""SOAP on the matrices in place of Muon: Adam in the eigenbasis of Shampoo's preconditioners."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from golf.settings.config import Config
from golf.settings.fields import number
from golf.training.optim.rules import MatrixRule, State
from golf.training.techniques.base import CHANGES_STEP, Technique, technique


@dataclass(frozen=True)
class Soap:
    """The update of n matrices of one shape; its settings are those of the technique."""

    beta1: float
    beta2: float
    shampoo_beta: float
    every: int
    eps: float
    rate: float = 1.0

    def __call__(self, grads: Tensor, state: State) -> Tensor:
        """Return rate · Q_L · m̂' / (√v̂ + eps) · Q_Rᵀ `[n, r, c]`: m' = Q_Lᵀ m Q_R, v of turned gradients."""
        g, steps = grads.to(state["exp_avg"].dtype), state["steps"]
        for name, gram in (("left", g @ g.mT), ("right", g.mT @ g)):
            state[name].lerp_(gram, 1 - self.shampoo_beta)
        self._turn(state, int(steps[0]))
        steps += 1
        left, right = state["left_basis"], state["right_basis"]
        mean, squares = state["exp_avg"].lerp_(g, 1 - self.beta1), state["exp_avg_sq"]
        turned = left.mT @ g @ right
        squares.mul_(self.beta2).addcmul_(turned, turned, value=1 - self.beta2)
        direction = left.mT @ (mean / (1 - self.beta1**steps)) @ right
        return self.rate * (left @ (direction / ((squares / (1 - self.beta2**steps)).sqrt() + self.eps)) @ right.mT)

    def _turn(self, state: State, steps: int) -> None:
        """Find the eigenbases at the first step, and follow them by one power iteration every `every` steps."""
        if steps % self.every:
            return
        for side in ("left", "right"):
            gram, basis = state[side], state[f"{side}_basis"]
            basis.copy_(torch.linalg.qr(gram @ basis).Q if steps else torch.linalg.eigh(gram).eigenvectors)


def square_of(shape: torch.Size, side: int) -> tuple[int, int]:
    """Return the shape of a preconditioner, `[r, r]` or `[c, c]`."""
    return shape[side], shape[side]


def one_number(shape: torch.Size) -> tuple[int, int]:
    """Return the shape of the count of steps of a matrix."""
    return 1, 1


@technique("soap")
@dataclass
class SOAP(Technique):
    """It keeps 2(r² + c²) + 2rc numbers a matrix; its decay is `optim.matrix_lr` · `optim.muon_wd`, as Muon's is."""

    source = "arXiv 2409.11321"
    effect = CHANGES_STEP
    conflicts = ("adam_matrices", "cautious", "centralized", "lion_matrices", "normuon")

    beta1: float = number(0.95, at_least=0, below=1)  # of the mean of gradients
    beta2: float = number(0.95, at_least=0, below=1)  # of the mean of squares, in the eigenbasis
    shampoo_beta: float = number(0.95, at_least=0, below=1)  # of the preconditioners
    every: int = number(10, at_least=1)  # steps between two turns of the eigenbasis
    eps: float = number(1e-8, above=0)
    rate: float = number(0.03, above=0)  # share of optim.matrix_lr: about AdamW's

    def matrix_rule(self, rule: MatrixRule, cfg: Config) -> MatrixRule:
        """Return the rule with SOAP in place of momentum and orthogonalisation."""
        left, right = partial(square_of, side=0), partial(square_of, side=1)
        return rule.replaced(
            Soap(self.beta1, self.beta2, self.shampoo_beta, self.every, self.eps, self.rate),
            exp_avg=tuple,
            exp_avg_sq=tuple,
            left=left,
            left_basis=left,
            right=right,
            right_basis=right,
            steps=one_number,
        )
