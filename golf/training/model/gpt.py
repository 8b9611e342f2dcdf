"""The baseline language model: a U-shaped stack of attention/MLP blocks over a tied embedding.

Parameter names are those of the public scripts, so that their checkpoints load here and ours there. Techniques edit a
model once, at construction, through the attributes that the classes list. Other techniques leave no trace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from golf.settings.config import ModelConfig, mlp_hidden
from golf.training.model.attention import CausalSelfAttention
from golf.training.model.eager_cpu import suits_eager_cpu
from golf.training.model.eager_cpu.loss import LARGEST_CAP, softcapped_losses
from golf.training.model.layers import MLP, CastedLinear, Context, RMSNorm, embed_dtype
from golf.training.model.rotary import Rotary


class Route(NamedTuple):
    """The order of the blocks: outputs of the first half are stored, the second half adds them again."""

    storing: list[int]
    joining: list[int]


def route_through(blocks: list[int]) -> Route:
    """Split `blocks` into two halves. The second is the longer one if their number is odd."""
    half = len(blocks) // 2
    return Route(blocks[:half], blocks[half:])


class Block(nn.Module):
    """Attention and MLP around a residual stream that can be mixed with the embedding output again."""

    def __init__(self, cfg: ModelConfig):
        super().__init__()
        dim = cfg.model_dim
        self.attn = CausalSelfAttention(cfg)
        self.mlp: nn.Module = MLP(dim, mlp_hidden(cfg))
        self.attn_norm, self.mlp_norm = RMSNorm(), RMSNorm()
        self.attn_scale = nn.Parameter(torch.ones(dim))
        self.mlp_scale = nn.Parameter(torch.ones(dim))
        self.resid_mix = nn.Parameter(torch.stack((torch.ones(dim), torch.zeros(dim))))

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Return the residual stream `[B, T, d]` after this block."""
        mix = self.resid_mix.to(x.dtype)
        x = torch.addcmul(mix[0] * x, mix[1], context.x0)
        x = torch.addcmul(x, self.attn_scale.to(x.dtype), self.attn(self.attn_norm(x), context))
        return torch.addcmul(x, self.mlp_scale.to(x.dtype), self.mlp(self.mlp_norm(x), context.active))


def join_weighted(model: GPT, x: Tensor, stored: Tensor, i: int) -> Tensor:
    """Add the stored output, weighted per channel, before the i-th block of the second half."""
    return x + model.skip_weights[i].to(x.dtype) * stored


class GPT(nn.Module):
    """Token ids `[B, T]` to logits `[B, T, V]`; called with targets too, it gives the mean loss in nats.

    Attributes for techniques: `before_norm` and `after_norm` (x, ids → x, around the norm of the embedding output),
    `shared_terms` (name → function of ids, evaluated once a pass into `Context.shared`), `rotary`, `join_skip`,
    `routes` (name of a late switch → `Route` while it is on), and those of the blocks, attentions and MLPs.
    `active` names the late switches that are on; without it a call uses `active_in_scoring`, the end of training.
    """

    def __init__(self, cfg: ModelConfig):
        super().__init__()
        self.cfg = cfg
        self.tok_emb = nn.Embedding(cfg.vocab_size, cfg.model_dim)
        self.route = route_through(list(range(cfg.num_layers)))
        self.blocks = nn.ModuleList(Block(cfg) for _ in range(cfg.num_layers))
        if cfg.unet_skips:
            self.skip_weights = nn.Parameter(torch.ones(len(self.route.storing), cfg.model_dim))
        self.lm_head = None if cfg.tie_embeddings else CastedLinear(cfg.model_dim, cfg.vocab_size, zero_init=True)
        if cfg.tie_embeddings:
            nn.init.normal_(self.tok_emb.weight, std=cfg.tied_embed_init_std)
        self.tok_emb.to(embed_dtype(cfg.compute_dtype))
        self.rotary = Rotary(cfg.model_dim // cfg.num_heads, cfg.rope_base)
        self.embed_norm, self.final_norm = RMSNorm(), RMSNorm()
        self.before_norm: list[Callable[[Tensor, Tensor], Tensor]] = []
        self.after_norm: list[Callable[[Tensor, Tensor], Tensor]] = []
        self.shared_terms: dict[str, Callable[[Tensor], Tensor]] = {}
        self.join_skip: Callable[[GPT, Tensor, Tensor, int], Tensor] = join_weighted
        self.routes: dict[str, Route] = {}
        self.active_in_scoring: tuple[str, ...] = ()

    def forward(self, input_ids: Tensor, target_ids: Tensor, active: tuple[str, ...] | None = None) -> Tensor:
        """Return the mean cross-entropy in nats per token (float32) of `target_ids` `[B, T]` given `input_ids`."""
        return self.token_losses(input_ids, target_ids, active).mean()

    def token_losses(self, input_ids: Tensor, target_ids: Tensor, active: tuple[str, ...] | None = None) -> Tensor:
        """Return the cross-entropy in nats of every target, `[B, T]` float32."""
        return self.losses_of(self.hidden(input_ids, active), target_ids, active or ())

    def losses_of(self, x: Tensor, target_ids: Tensor, active: tuple[str, ...] = ()) -> Tensor:
        """Return the nats `[...]` float32 of targets `[...]` given normalised hidden states `[..., d]`."""
        weight, cap = self.head_weight(active), self.cfg.logit_softcap
        if suits_eager_cpu(x) and cap <= LARGEST_CAP:
            return softcapped_losses(x, weight, target_ids, cap)
        logits = self.softcap(F.linear(x, weight.to(x.dtype))).float()
        return F.cross_entropy(logits.flatten(0, -2), target_ids.flatten(), reduction="none").view(target_ids.shape)

    def logits(self, input_ids: Tensor, active: tuple[str, ...] | None = None) -> Tensor:
        """Return next-token logits `[B, T, V]` in the compute dtype, softly capped to ±`logit_softcap`."""
        return self.softcap(self.head(self.hidden(input_ids, active), active or ()))

    def head(self, x: Tensor, active: tuple[str, ...] = ()) -> Tensor:
        """Return the raw logits `[..., V]` of normalised hidden states `[..., d]`."""
        return F.linear(x, self.head_weight(active).to(x.dtype))

    def head_weight(self, active: tuple[str, ...] = ()) -> Tensor:
        """Return the head's matrix `[V, d]`, which is the embedding's if they are tied."""
        return self.tok_emb.weight if self.lm_head is None else self.lm_head.edited_weight(active)

    def softcap(self, logits: Tensor) -> Tensor:
        return self.cfg.logit_softcap * torch.tanh(logits / self.cfg.logit_softcap)

    def hidden(self, input_ids: Tensor, active: tuple[str, ...] | None = None) -> Tensor:
        """Return the normalised output of the last block, `[B, T, d]`.

        The first half of the blocks stores its outputs, the second half adds them back last in, first out.
        """
        active = self.active_in_scoring if active is None else active
        x = self.stream_start(input_ids)
        cos, sin = self.rotary.tables(input_ids.size(1), like=x)
        shared = {name: term(input_ids) for name, term in self.shared_terms.items()}
        context = Context(input_ids, x, cos, sin, shared, active)
        route = next((self.routes[name] for name in active if name in self.routes), self.route)
        stored: list[Tensor] = []
        for block in route.storing:
            x = self.blocks[block](x, context)
            stored.append(x)
        for i, block in enumerate(route.joining):
            if stored and self.cfg.unet_skips:
                x = self.join_skip(self, x, stored.pop(), i)
            x = self.blocks[block](x, context)
        return self.final_norm(x)

    def stream_start(self, input_ids: Tensor) -> Tensor:
        """Return the residual stream before the first block, `[B, T, d]`."""
        x = self.tok_emb(input_ids)
        for edit in self.before_norm:
            x = edit(x, input_ids)
        x = self.embed_norm(x)
        for edit in self.after_norm:
            x = edit(x, input_ids)
        return x
