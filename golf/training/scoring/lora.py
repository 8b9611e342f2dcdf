"""Low-rank factors beside a model's layers, a pair for every row of a batch, added by hooks (arXiv 2106.09685)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from golf.errors import GolfError
from golf.settings.scoring_config import TTTConfig
from golf.training.model.gpt import GPT, Block

# Target → module of a block whose output gets a product of its input, in the order in which factors are drawn. As
# published, `o` and `mlp` go from the normalised input of attention and MLP to their outputs.
PLACES = {"q": "attn.c_q", "k": "attn.c_k", "v": "attn.c_v", "o": "attn", "mlp": "mlp"}
MATRICES = ("q", "k", "v")  # targets that are matrices, which a model may keep otherwise


class LowRank(nn.Module):
    """Product f·B·A·x for x `[B, T, in]`, with each row's own `a` `[B, r, in]` and `b` `[B, out, r]`; zero at first."""

    def __init__(self, a: Tensor, out_features: int, factor: float):
        super().__init__()
        rows, rank, _ = a.shape
        self.a = nn.Parameter(a)
        self.b = nn.Parameter(a.new_zeros(rows, out_features, rank))
        self.factor = factor
        self.first_row = 0  # index of the first row that is still in the batch

    def forward(self, x: Tensor) -> Tensor:
        a, b = (factor[self.first_row :].to(x.dtype) for factor in (self.a, self.b))
        y = x @ a.transpose(1, 2) @ b.transpose(1, 2)
        # Most forms have no factor, and it would be one more operation.
        return y if self.factor == 1.0 else y * self.factor


class BatchLoRA(nn.Module):
    """Factors for the targets of `ttt` in `model`, for `rows` documents side by side, drawn from `seed` on its device.

    With `lora_a=same` all rows start from the same A: a document's row depends on the lengths of later documents, and
    its scores must not.
    """

    def __init__(self, model: GPT, rows: int, ttt: TTTConfig, seed: int):
        super().__init__()
        self.rows, self.ttt, self.plain_head = rows, ttt, model.head
        self.per_application = ttt.lora_per == "application"
        self.occurrence = 0  # use of the current block in this forward pass, counted from 0
        self.blocks = [block for block in model.blocks if isinstance(block, Block)]
        # Drawn where they are used: as many numbers from the CPU would take minutes of a score's time.
        self.device = model.tok_emb.weight.device
        generator = torch.Generator("cpu" if self.device.type == "meta" else self.device).manual_seed(seed)
        layers: dict[tuple[int, str, int], LowRank] = {}
        for number, occurrence in self._slots(model):
            for target in _block_targets(ttt):
                in_features, out_features = _features(self.blocks[number], target)
                layers[number, target, occurrence] = self._new(in_features, out_features, generator)
        self.layers = layers
        self.registered = nn.ModuleList(layers.values())
        self.head_factors: LowRank | None = None
        if "head" in ttt.lora_targets:
            self.head_factors = self._new(model.cfg.model_dim, model.cfg.vocab_size, generator)

    def _slots(self, model: GPT) -> list[tuple[int, int]]:
        """Return the blocks with factors as (index, occurrence)."""
        if self.per_application:
            return [(visit.block, visit.occurrence) for visit in model.route_when(model.active_in_scoring)]
        return [(number, 0) for number in range(len(model.blocks))]

    def _new(self, in_features: int, out_features: int, generator: torch.Generator) -> LowRank:
        # The range from which nn.Linear draws its weights.
        bound, rank = 1.0 / math.sqrt(in_features), self.ttt.lora_rank
        is_same = self.ttt.lora_a == "same"
        start = torch.empty(1 if is_same else self.rows, rank, in_features, device=self.device)
        start.uniform_(-bound, bound, generator=generator)
        factor = 1.0 if self.ttt.lora_alpha is None else self.ttt.lora_alpha / rank
        return LowRank(start.repeat(self.rows, 1, 1) if is_same else start, out_features, factor)

    def all_factors(self) -> Iterator[LowRank]:
        """Yield the pairs of every layer, and the head's last."""
        yield from self.layers.values()
        if self.head_factors is not None:
            yield self.head_factors

    def keep_from(self, row: int) -> None:
        """Leave out the rows before `row`, which later batches do not hold."""
        for factors in self.all_factors():
            factors.first_row = row

    @torch.no_grad()
    def forget(self) -> None:
        """Set every B to zero, so that the factors add nothing; A stays."""
        for factors in self.all_factors():
            factors.b.zero_()

    def head(self, x: Tensor) -> Tensor:
        """Return the raw logits `[B, S, V]` of `x` `[B, S, d]`."""
        logits = self.plain_head(x)
        return logits if self.head_factors is None else logits + self.head_factors(x)

    def attach(self) -> list[RemovableHandle]:
        """Add the factors' products to the layers' outputs until the handles are removed."""
        handles = []
        for number, block in enumerate(self.blocks):
            if self.per_application:
                handles.append(block.register_forward_pre_hook(self._enter))
            for target in _block_targets(self.ttt):
                for place in block.mlps() if target == "mlp" else [block.get_submodule(PLACES[target])]:
                    handles.append(place.register_forward_hook(self._add(number, target)))
        return handles

    def _enter(self, _: nn.Module, inputs: tuple[Any, ...]) -> None:
        self.occurrence = inputs[1].visit.occurrence

    def _add(self, number: int, target: str) -> Callable[..., Tensor]:
        return lambda _, inputs, output: output + self.layers[number, target, self.occurrence](inputs[0])


def _block_targets(ttt: TTTConfig) -> list[str]:
    return [target for target in PLACES if target in ttt.lora_targets]


def _features(block: Block, target: str) -> tuple[int, int]:
    """Return the channels of what the target's factors read and of what they write."""
    matrix = block.get_submodule(PLACES[target]) if target in MATRICES else None
    dim = block.attn_scale.numel()
    return (matrix.in_features, matrix.out_features) if isinstance(matrix, nn.Linear) else (dim, dim)


def check_adapted(model: GPT, ttt: TTTConfig) -> None:
    """Raise `GolfError` if the model's attention has not all the matrices that get factors."""
    wanted = [PLACES[target] for target in _block_targets(ttt) if target in MATRICES]
    for block in model.blocks:
        modules = dict(block.named_modules())
        if not all(isinstance(modules.get(place), nn.Linear) for place in wanted):
            names = " and ".join(place.removeprefix("attn.") for place in wanted)
            raise GolfError(
                f"eval.ttt.method=lora adapts the matrices {names} of every block, and this model keeps them "
                "otherwise: use separate matrices or eval.ttt.method=sgd."
            )
