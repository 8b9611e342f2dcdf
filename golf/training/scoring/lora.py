"""Low-rank factors beside linear layers, a pair for every row of a batch, added by hooks (arXiv 2106.09685)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from golf.errors import GolfError
from golf.training.model.gpt import GPT

ADAPTED = ("c_q", "c_v")


class LowRank(nn.Module):
    """Product B·A·x for x `[B, T, in]`, with each row's own `a` `[B, r, in]` and `b` `[B, out, r]`; zero at first."""

    def __init__(self, rows: int, in_features: int, out_features: int, rank: int, generator: torch.Generator):
        super().__init__()
        # The range from which nn.Linear draws its weights.
        bound = 1.0 / math.sqrt(in_features)
        # Drawn on the CPU, so that the factors are the same on every device.
        start = torch.empty(rank, in_features).uniform_(-bound, bound, generator=generator)
        self.a = nn.Parameter(start.repeat(rows, 1, 1))
        self.b = nn.Parameter(torch.zeros(rows, out_features, rank))
        self.first_row = 0  # index of the first row that is still in the batch

    def forward(self, x: Tensor) -> Tensor:
        a, b = (factor[self.first_row :].to(x.dtype) for factor in (self.a, self.b))
        return x @ a.transpose(1, 2) @ b.transpose(1, 2)


class BatchLoRA(nn.Module):
    """Factors for queries and values of every block and for the head of `model`, for `rows` documents side by side.

    All rows start from the same A, drawn from `seed`: a document's row depends on the lengths of later documents, and
    its scores must not.
    """

    def __init__(self, model: GPT, rows: int, rank: int, seed: int):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.targets = adapted_layers(model)
        self.layers = [LowRank(rows, layer.in_features, layer.out_features, rank, generator) for layer in self.targets]
        self.registered = nn.ModuleList(self.layers)
        self.plain_head = model.head
        self.head_factors = LowRank(rows, model.cfg.model_dim, model.cfg.vocab_size, rank, generator)

    def keep_from(self, row: int) -> None:
        """Leave out the rows before `row`, which later batches do not hold."""
        for factors in (*self.layers, self.head_factors):
            factors.first_row = row

    def head(self, x: Tensor) -> Tensor:
        """Return the raw logits `[B, S, V]` of `x` `[B, S, d]`."""
        return self.plain_head(x) + self.head_factors(x)

    def attach(self) -> list[RemovableHandle]:
        """Add the factors' products to the layers' outputs until the handles are removed."""
        return [
            layer.register_forward_hook(lambda _, inputs, output, factors=factors: output + factors(inputs[0]))
            for layer, factors in zip(self.targets, self.layers, strict=True)
        ]


def adapted_layers(model: GPT) -> list[nn.Linear]:
    """Return the layers that get factors. Raises `GolfError` if the model's attention has no such layers."""
    found = [module for name, module in model.blocks.named_modules() if name.rpartition(".")[2] in ADAPTED]
    layers = [module for module in found if isinstance(module, nn.Linear)]
    if len(layers) < len(ADAPTED) * len(model.blocks):
        raise GolfError(
            "eval.ttt.method=lora adapts the matrices c_q and c_v of every block, and this model keeps them otherwise: "
            "use separate matrices or eval.ttt.method=sgd."
        )
    return layers
