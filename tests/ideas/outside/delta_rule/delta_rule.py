"""The attention of one layer becomes a gated delta rule: a state that is corrected towards each value."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from golf.settings.config import Config
from golf.training.model.gpt import GPT
from golf.training.model.layers import CastedLinear, Context
from golf.training.model.slots import set_slot
from golf.training.techniques.base import Technique, technique


class DeltaRule(nn.Module):
    """S ← a·S − b·(a·S k − v) kᵀ and o = S q, a head, with a in (0, 1) and b in (0, 1)."""

    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.heads = heads
        self.c_q, self.c_k, self.c_v = (CastedLinear(dim, dim) for _ in range(3))
        self.gates = nn.Linear(dim, 2 * heads)
        self.proj = CastedLinear(dim, dim, zero_init=True)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Return the output `[B, T, dim]`; the state begins at zero in each row."""
        batch, tokens, dim = x.shape
        shape = batch, tokens, self.heads, dim // self.heads
        q, k, v = (part(x, context.active).view(shape).float() for part in (self.c_q, self.c_k, self.c_v))
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        weights = self.gates.weight.float(), self.gates.bias.float()
        keep, learn = torch.sigmoid(F.linear(x.float(), *weights)).view(*shape[:3], 2).unbind(-1)
        state = x.new_zeros(batch, self.heads, shape[3], shape[3], dtype=torch.float32)
        outputs = []
        for t in range(tokens):
            state = state * keep[:, t, :, None, None]
            error = torch.einsum("bhij,bhj->bhi", state, k[:, t]) - v[:, t]
            state = state - learn[:, t, :, None, None] * error[..., None] * k[:, t, :, None, :]
            outputs.append(torch.einsum("bhij,bhj->bhi", state, q[:, t]))
        return self.proj(torch.stack(outputs, 1).reshape(batch, tokens, dim).to(x.dtype), context.active)


@technique("delta_rule")
@dataclass
class GatedDeltaRule(Technique):
    """The loop over tokens is slow and plain; it is for short windows."""

    source = "arXiv 2412.06464"
    groups = (("*.attn.gates.*", "scalar"),)

    layer: int = 1  # layer whose attention it replaces, from 0

    def edit_model(self, model: GPT, cfg: Config) -> None:
        set_slot(model.blocks[self.layer], "attn", DeltaRule(cfg.model.model_dim, cfg.model.num_heads), self.name)
