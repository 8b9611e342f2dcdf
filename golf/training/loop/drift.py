"""Hessians and corrections for drift: the matrices are rounded in the order of the forward pass.

Each stage, the matrices that share an input, takes a pass of the trained and of the rounded model over the same text.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import torch
from torch import Tensor

from golf.artifact.quant.drift import DRIFT, drift_correction
from golf.artifact.quant.formats import Tensors
from golf.artifact.quant.hessians import as_rows, observed
from golf.artifact.quant.policy import repaired_names
from golf.settings.config import Config
from golf.training.loop.sensitivity import rounded_values
from golf.training.model.build import build_scored_model
from golf.training.model.gpt import GPT
from golf.training.ranks import Ranks


def read_inputs(model: GPT, names: Collection[str], ids: Tensor, note: Callable[[str, Tensor], None]) -> None:
    """Run `ids` `[B, T]` through `model` and call `note` with name and input of the matrices in `names`."""
    with observed(model, names, note):
        hidden = model.hidden(ids)
    # The head is applied after `hidden`, where no hook sees its input.
    if (head := head_name(model)) in names:
        note(head, hidden)


def _uses(model: GPT, name: str, ids: Tensor) -> list[Tensor]:
    """Return the input `[n, c]` float32 of every use of the matrix `name` in a pass over `ids`."""
    found: list[Tensor] = []
    read_inputs(model, [name], ids, lambda _, inputs: found.append(as_rows(inputs)))
    return found


def head_name(model: GPT) -> str:
    """Return the name of the matrix that makes the logits."""
    return "tok_emb.weight" if model.lm_head is None else "lm_head.weight"


class DriftCorrection:
    """The model as far as it is rounded, beside the trained one. `batches` are this rank's ids `[B, T]`.

    `hessians` hold the inputs of the trained model at first. Every stage replaces its own by those of the rounded model
    and adds its correction.
    """

    def __init__(
        self,
        cfg: Config,
        model: GPT,
        weights: Tensors,
        hessians: dict[str, Tensor],
        batches: Sequence[Tensor],
        ranks: Ranks,
    ):
        self.cfg, self.model, self.weights, self.hessians = cfg, model, weights, hessians
        self.batches, self.ranks = batches, ranks
        self.repaired = repaired_names(weights, cfg.quant, hessians, cfg.tech)
        self.rounded = build_scored_model(cfg, ranks.device)
        self.rounded.load_state_dict(weights)
        # A tied embedding is read first, so that its head cannot wait for the layers in between.
        first = weights.keys() - hessians.keys() | {"tok_emb.weight"}
        self._round([name for name in weights if name in first])

    def correct(self, stage: Sequence[str]) -> None:
        """Correct and round the matrices of `stage`, which share an input."""
        # A tied embedding has been rounded.
        if "tok_emb.weight" in stage:
            return
        hessian, crossed = self._sums(stage[0])
        correction = drift_correction(crossed, hessian)
        for name in stage:
            self.hessians |= {name: hessian, name + DRIFT: correction}
        self._round(stage)

    def _sums(self, name: str) -> list[Tensor]:
        """Return Σ x̂ x̂ᵀ and Σ x x̂ᵀ `[c, c]` over the uses of a matrix on all ranks."""
        size = self.weights[name].size(1)
        sums = [torch.zeros(size, size, device=self.ranks.device) for _ in range(2)]
        for ids in self.batches:
            for before, after in zip(*(_uses(model, name, ids) for model in (self.model, self.rounded)), strict=True):
                sums[0].addmm_(after.T, after)
                sums[1].addmm_(before.T, after)
        self.ranks.sum_tensors(sums)
        return [total.to(self.hessians[name].device) for total in sums]

    def _round(self, names: Sequence[str]) -> None:
        """Put the stored values of the tensors `names` into the rounded model."""
        values = rounded_values(self.cfg, self.weights, self.hessians, names, self.repaired, self.ranks)
        self.rounded.load_state_dict(values, strict=False)
