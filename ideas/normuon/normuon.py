"""NorMuon: each neuron's part of an orthogonalised update is divided by the running size of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from golf.settings.config import Config
from golf.settings.fields import number, one_of
from golf.training.optim.rules import MatrixRule, State
from golf.training.techniques.base import CHANGES_STEP, Technique, technique

LEAST = 1e-10  # of the running mean of squares


def normalized(update: Tensor, _: Tensor, state: State, *, beta2: float, axis: str) -> Tensor:
    """Return O / √v with the Frobenius norm of O, `[n, r, c]`; v is the running mean of O² over a row or column."""
    wide = axis == "longer" and update.size(1) < update.size(2)
    squares = update.float().square().mean(dim=1 if wide else 2, keepdim=True)
    running = state["neuron_squares"]
    running.lerp_(squares, 1 - beta2)
    scaled = update / running.clamp(min=LEAST).sqrt().to(update.dtype)
    lengths = [u.float().norm(dim=(1, 2), keepdim=True) for u in (update, scaled)]
    # A matrix without a gradient has an update of zero, which stays zero.
    return scaled * (lengths[0] / lengths[1].clamp(min=LEAST)).to(update.dtype)


def one_a_neuron(shape: torch.Size, axis: str) -> tuple[int, int]:
    """Return the shape of v for a matrix `[r, c]`."""
    rows, columns = shape
    return (1, columns) if axis == "longer" and rows < columns else (rows, 1)


@technique("normuon")
@dataclass
class NorMuon(Technique):
    """v starts at zero without bias correction, which the restored length makes up for."""

    source = "arXiv 2510.05491, PR #438"
    effect = CHANGES_STEP

    beta2: float = number(0.95, at_least=0, below=1)  # of the running mean of squares
    axis: str = one_of("rows", "longer")  # neurons are rows, or lie along the longer side as in modded-nanogpt

    def matrix_rule(self, rule: MatrixRule, cfg: Config) -> MatrixRule:
        """Return `rule` with the normalisation after its orthogonalisation."""
        shape = partial(one_a_neuron, axis=self.axis)
        return rule.with_after(partial(normalized, beta2=self.beta2, axis=self.axis), neuron_squares=shape)
