"""Value embeddings: one shared table of token vectors, added to the values of a few layers."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from golf.errors import GolfError
from golf.registry import Variable
from golf.settings.config import Config
from golf.settings.fields import later, one_of
from golf.training.model.attention import CausalSelfAttention
from golf.training.model.gpt import GPT
from golf.training.model.layers import CastedLinear, Context, embed_dtype
from golf.training.techniques.base import Technique, technique
from golf.words import counted

TABLE_STD, SCALE_INIT = 0.01, 0.1
SHARED_KEY = "value_embed"


class ValueEmbedding(nn.Module):
    """Ids `[B, T]` to `[B, T, K·D]`, computed once a pass. The projection starts at zero."""

    def __init__(self, vocab_size: int, dim: int, kv_dim: int):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, dim)
        nn.init.normal_(self.embed.weight, std=TABLE_STD)
        self.proj = CastedLinear(dim, kv_dim)
        # Not by `zero_init`: ortho_init draws projections of embeddings anew and leaves marked ones to `proj_init`.
        nn.init.zeros_(self.proj.weight)
        self.scale = nn.Parameter(torch.tensor(SCALE_INIT))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.proj(self.embed(ids))
        return x * self.scale.to(x.dtype)


@dataclass(frozen=True)
class AddScaled:
    """Value hook of one layer. The scale is looked up by name, so that copies of a model use their own."""

    scales: nn.ParameterList
    index: int

    def __call__(self, attn: CausalSelfAttention, v: Tensor, context: Context) -> Tensor:
        return v + (context.shared[SHARED_KEY] * self.scales[self.index].to(v.dtype)).view(v.shape)


@technique("value_embed")
@dataclass
class ValueEmbed(Technique):
    """Layers are counted from 0, or from the end if negative.

    Public scripts with parameter banks leave the projection to Adam: `proj_optimizer=adam`.
    """

    source = "PR #374"
    variables = (
        Variable("VE_ENABLED", selects=True),
        Variable("VE_DIM", "dim"),
        Variable("VE_LAYERS", lambda value: {"layers": f"[{value}]"}),
    )
    groups = (
        ("ve_shared.embed.weight", "embed"),
        ("ve_shared.proj.weight", "matrix"),
        ("ve_shared.scale", "scalar"),
        ("ve_layer_scales.*", "scalar"),
    )
    control_names = ("ve_layer_scales.*", "ve_shared.scale")

    dim: int = 128
    layers: list[int] = field(default_factory=lambda: [-2, -1])
    proj_optimizer: str = later(one_of("muon", "adam"))  # optimizer of the projection

    def check(self, cfg: Config) -> None:
        n = cfg.model.num_layers
        if not self.layers or len({i % n for i in self.layers}) < len(self.layers):
            raise GolfError(f"tech.value_embed.layers={self.layers} has to name different layers, at least one.")
        if wrong := [i for i in self.layers if not -n <= i < n]:
            raise GolfError(f"tech.value_embed.layers names layer {wrong[0]}, but the model has {counted(n, 'layer')}.")

    def group_of(self, name: str) -> str | None:
        if self.proj_optimizer == "adam" and name == "ve_shared.proj.weight":
            return "scalar"
        return super().group_of(name)

    def edit_model(self, model: GPT, cfg: Config) -> None:
        m = cfg.model
        model.ve_shared = ValueEmbedding(m.vocab_size, self.dim, m.num_kv_heads * (m.model_dim // m.num_heads))
        model.ve_shared.embed.to(embed_dtype(m.compute_dtype))
        model.ve_layer_scales = nn.ParameterList([nn.Parameter(torch.ones(1)) for _ in self.layers])
        model.shared_terms[SHARED_KEY] = model.ve_shared
        for index, layer in enumerate(i % m.num_layers for i in self.layers):
            model.blocks[layer].attn.value_hooks["add"].append(AddScaled(model.ve_layer_scales, index))
