"""AdaMuon: signs of the momentum are orthogonalised, and every element is divided by its own running size."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from torch import Tensor

from golf.errors import GolfError
from golf.settings.config import Config
from golf.settings.fields import number
from golf.training.optim.muon import tall_factor
from golf.training.optim.rules import MatrixRule, State
from golf.training.techniques.base import CHANGES_STEP, Technique, technique

LEAST_LENGTH = 1e-10  # of an update


def signs(momentum: Tensor, _: Tensor, __: State) -> Tensor:
    """Return the signs of the momentum `[n, r, c]`."""
    return momentum.sign()


def adapted(update: Tensor, _: Tensor, state: State, *, beta: float, eps: float, rms: float) -> Tensor:
    """Return rms·√(r·c)·Ô/‖Ô‖ `[n, r, c]` less Muon's own scale; Ô = O / (√V + eps), V the running mean of O²."""
    wide, running = update.float(), state["element_squares"]
    running.lerp_(wide.square(), 1 - beta)
    scaled = wide / (running.sqrt() + eps)
    # A matrix without a gradient has an update of zero, which stays zero.
    length = scaled.norm(dim=(1, 2), keepdim=True).clamp(min=LEAST_LENGTH)
    # The rule multiplies by this factor behind its last edit, and AdaMuon has its own scale in its place.
    size = rms * (update.size(1) * update.size(2)) ** 0.5 / tall_factor(update)
    return (scaled * (size / length)).to(update.dtype)


@technique("adamuon")
@dataclass
class AdaMuon(Technique):
    """V starts at zero without bias correction, which the fixed size of a step makes up for."""

    source = "arXiv 2507.11005"
    effect = CHANGES_STEP
    conflicts = ("adam_matrices", "centralized", "lion_matrices", "normuon", "soap")

    beta: float = number(0.95, at_least=0, below=1)  # of the running mean of squares
    eps: float = number(1e-8, above=0)
    rms: float = number(0.2, above=0)  # of the elements of a step, in optim.matrix_lr: about AdamW's

    def check(self, cfg: Config) -> None:
        """Refuse rows of unit norm, which have the same signs."""
        if cfg.optim.muon_row_normalize:
            raise GolfError(
                "optim.muon_row_normalize changes nothing under the signs of tech.adamuon: "
                "set optim.muon_row_normalize=false."
            )

    def matrix_rule(self, rule: MatrixRule, cfg: Config) -> MatrixRule:
        """Return `rule` with the signs before its orthogonalisation and the division after it."""
        after = partial(adapted, beta=self.beta, eps=self.eps, rms=self.rms)
        # One number an element, of the shape of its matrix.
        return rule.with_before(signs).with_after(after, element_squares=tuple)
