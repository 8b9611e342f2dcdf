"""Queries, keys and values from one stored matrix and one product; to Muon they stay three matrices, if not told so."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from golf.settings.config import Config
from golf.settings.fields import later
from golf.training.model.attention import CausalSelfAttention
from golf.training.model.gpt import GPT
from golf.training.model.layers import CastedLinear
from golf.training.model.slots import set_slot
from golf.training.techniques.base import CHANGES_STORAGE, STORAGE, Technique, technique


def project_fused(attn: CausalSelfAttention, x: Tensor, active: tuple[str, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """Project `x` to queries `[B, T, H·D]`, keys and values `[B, T, K·D]`, by one matrix."""
    q, k, v = attn.c_qkv(x, active).split(attn.c_qkv.rows, dim=-1)
    return q, k, v


class FusedLinear(CastedLinear):
    """Several matrices of one input, stored below each other; `separate_rows` tells Muon where one ends."""

    def __init__(self, parts: list[CastedLinear], *, as_one: bool):
        self.rows = rows = [part.out_features for part in parts]
        super().__init__(parts[0].in_features, sum(rows))
        self.separate_rows = {} if as_one else {"weight": rows}
        with torch.no_grad():
            # Not `torch.cat`: for tensors without numbers it imports the compiler, which takes seconds.
            for own, part in zip(self.weight.split(rows), parts, strict=True):
                own.copy_(part.weight)


@technique("fused_qkv")
@dataclass
class FusedQKV(Technique):
    """It is slower on 8×H100 (PR #670: 3 to 17 % of the product), because the split views have to be copied."""

    source = "PR #670; as one matrix PR #640"
    effect = CHANGES_STORAGE  # the same function of the same numbers
    phase = STORAGE  # fuses what the separate matrices were initialised to
    groups = (("*.attn.c_qkv.weight", "matrix"),)

    as_one: bool = later(False)  # Muon orthogonalises the three as one matrix, as in the record of 24 March

    def edit_model(self, model: GPT, cfg: Config) -> None:
        for block in model.blocks:
            attn = block.attn
            attn.c_qkv = FusedLinear([attn.c_q, attn.c_k, attn.c_v], as_one=self.as_one)
            # Left in place they would be stored and trained as well.
            del attn.c_q, attn.c_k, attn.c_v
            set_slot(attn, "project", project_fused, self.name)
