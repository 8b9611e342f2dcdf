"""MLPs on frozen random maps that cost no bytes: signs drawn from a seed, with trained low-rank adapters on them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from golf.errors import GolfError
from golf.run.progress import Progress
from golf.settings.config import Config, mlp_hidden
from golf.settings.fields import number
from golf.training.model.gpt import GPT
from golf.training.model.layers import CastedLinear, relu_squared
from golf.training.model.slots import set_slot
from golf.training.techniques.base import Technique, technique

STEP, MIX = 0x9E3779B97F4A7C15, ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
DIGEST_BYTES = 8


def integers(seed: int, count: int) -> np.ndarray:
    """Return the first `count` integers of SplitMix64 from `seed`, uint64 `[count]`.

    They are equal on every machine and in every version of every library. Source: Steele, Lea and Flood 2014.
    """
    z = np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(STEP)
    for shift, factor in MIX:
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    return z ^ (z >> np.uint64(31))


def signs_of(seed: int, rows: int, columns: int) -> np.ndarray:
    """Return a map of ±1, int8 `[rows, columns]`; each integer gives 64 signs, from its lowest bit on."""
    words = integers(seed, -(-rows * columns // 64)).astype("<u8")
    bits = np.unpackbits(words.view(np.uint8), count=rows * columns, bitorder="little")
    return (2 * bits.astype(np.int8) - 1).reshape(rows, columns)


def refuse_other_maps(module: MappedMLP, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Raise `GolfError` if `state` was trained on other maps than those of `module`."""
    stored, own = state.get(prefix + "digest"), module.digest
    # A model that was built without numbers draws its maps before its first step.
    if stored is not None and module.is_drawn and not torch.equal(stored.to(own.device, own.dtype), own):
        raise GolfError(
            f"The weights of {prefix.rstrip('.')} were trained on random maps of digest {stored.cpu().tolist()}, and "
            f"tech.seeded_maps.seed gives {own.cpu().tolist()}: set the seed that they were trained with."
        )


class MappedLinear(nn.Module):
    """x (S/√in + up·down)ᵀ with frozen signs S `[out, in]`, which are in no state dict."""

    signs: Tensor

    def __init__(self, dim: int, out: int, rank: int):
        super().__init__()
        self.register_buffer("signs", torch.empty(out, dim, dtype=torch.int8), persistent=False)
        self.down, self.up = CastedLinear(dim, rank, zero_init=True), CastedLinear(rank, out)
        nn.init.normal_(self.up.weight, std=0.01)

    def forward(self, x: Tensor, active: tuple[str, ...] = ()) -> Tensor:
        mapped = F.linear(x, self.signs.to(x.dtype)) * self.signs.size(1) ** -0.5
        return mapped + self.up(self.down(x, active), active)


class MappedMLP(nn.Module):
    """W₂ · relu²(W₁x) on two maps, which its own `seed` gives; their digest is stored with the adapters."""

    digest: Tensor

    def __init__(self, dim: int, hidden: int, rank: int, seed: int):
        super().__init__()
        self.fc, self.proj = MappedLinear(dim, hidden, rank), MappedLinear(hidden, dim, rank)
        self.register_buffer("digest", torch.empty(DIGEST_BYTES, dtype=torch.uint8))
        self.seed = seed
        self.register_load_state_dict_pre_hook(refuse_other_maps)
        self.draw()

    def draw(self) -> None:
        """Write both maps and their digest. On the meta device, where proofs build models, nothing is written."""
        # A model may get numbers later.
        self.is_drawn = not self.digest.is_meta
        found = hashlib.sha256()
        for linear, seed in zip((self.fc, self.proj), integers(self.seed, 2).tolist(), strict=True):
            signs = signs_of(seed, *linear.signs.shape)
            found.update(signs.tobytes())
            linear.signs.copy_(torch.from_numpy(signs))
        self.digest.copy_(torch.tensor(list(found.digest()[:DIGEST_BYTES]), dtype=torch.uint8, device="cpu"))

    def forward(self, x: Tensor, active: tuple[str, ...] = ()) -> Tensor:
        return self.proj(relu_squared(self.fc(x, active)), active)


@technique("seeded_maps")
@dataclass
class SeededMaps(Technique):
    """Both matrices of every MLP; the artifact holds the adapters, the seed and eight bytes of digest a layer."""

    source = "PR #2058, with integers in place of its normal numbers; PR #1164"
    conflicts = ("swiglu", "leaky_relu", "untied_mlps", "soft_experts")
    groups = (("*.mlp.*.down.weight", "matrix"), ("*.mlp.*.up.weight", "matrix"))

    rank: int = number(160, at_least=1)  # channels of an adapter
    seed: int = number(0, at_least=0)  # of the maps

    def check(self, cfg: Config) -> None:
        """Refuse adapters that are as narrow as a gate, which Muon is not for."""
        if self.rank < (channels := cfg.model.model_dim // cfg.model.num_heads):
            raise GolfError(f"tech.seeded_maps.rank={self.rank} has to be the channels of a head ({channels}) or more.")

    def edit_model(self, model: GPT, cfg: Config) -> None:
        """Replace the MLPs."""
        for block, seed in zip(model.blocks, integers(self.seed, len(model.blocks)).tolist(), strict=True):
            mlp = MappedMLP(cfg.model.model_dim, mlp_hidden(cfg.model), self.rank, seed)
            set_slot(block, "mlp", mlp, self.name)

    def before_step(self, model: GPT, progress: Progress) -> None:
        """Draw the maps of a model that was built without numbers."""
        for block in model.blocks:
            if not block.mlp.is_drawn:
                block.mlp.draw()
