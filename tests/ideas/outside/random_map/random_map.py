"""Every MLP is a fixed map of random signs, which costs no bytes, with a small trained matrix on each side."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from golf.settings.config import Config, mlp_hidden
from golf.settings.fields import number
from golf.training.model.gpt import GPT
from golf.training.model.layers import CastedLinear
from golf.training.model.slots import set_slot
from golf.training.techniques.base import Technique, technique

from .signs import signs


class MappedMLP(nn.Module):
    """D(relu(S x + U(V x))²) with S of fixed signs, `[hidden, dim]`, and U, V of `rank`."""

    map: Tensor

    def __init__(self, dim: int, hidden: int, rank: int, seed: int):
        super().__init__()
        self.register_buffer("map", signs(hidden, dim, seed), persistent=False)
        self.down_rank, self.up_rank = CastedLinear(dim, rank), CastedLinear(rank, hidden)
        self.proj = CastedLinear(hidden, dim, zero_init=True)

    def forward(self, x: Tensor, active: tuple[str, ...] = ()) -> Tensor:
        """Return the output `[B, T, dim]`."""
        hidden = F.linear(x, self.map.to(x.dtype)) + self.up_rank(self.down_rank(x, active), active)
        return self.proj(torch.relu(hidden).square(), active)


@technique("random_map")
@dataclass
class RandomMap(Technique):
    """The map is drawn anew from its seed when a model is built."""

    source = "PR #874"
    groups = (("*.mlp.down_rank.weight", "matrix"), ("*.mlp.up_rank.weight", "matrix"))

    rank: int = number(16, at_least=1)  # of the trained matrices beside the map
    map_seed: int = number(1, at_least=0)  # of the signs

    def edit_model(self, model: GPT, cfg: Config) -> None:
        for index, block in enumerate(model.blocks):
            mlp = MappedMLP(cfg.model.model_dim, mlp_hidden(cfg.model), self.rank, self.map_seed + index)
            set_slot(block, "mlp", mlp, self.name)
