"""The baseline language model: a U-shaped stack of attention/MLP blocks over a tied embedding.

Parameter names are those of the public scripts, so that their checkpoints load here and ours there.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from golf.config import Config, ModelConfig, mlp_hidden
from golf.model.attention import CausalSelfAttention
from golf.model.layers import CastedLinear, embed_dtype, rms_norm
from golf.model.mlp import MLP
from golf.model.rotary import rotary_tables


class Block(nn.Module):
    """Attention and MLP around a residual stream that can be mixed with the embedding output again."""

    def __init__(self, cfg: ModelConfig):
        super().__init__()
        dim = cfg.model_dim
        self.attn = CausalSelfAttention(cfg)
        self.mlp = MLP(dim, mlp_hidden(cfg))
        self.attn_scale = nn.Parameter(torch.ones(dim))
        self.mlp_scale = nn.Parameter(torch.ones(dim))
        self.resid_mix = nn.Parameter(torch.stack((torch.ones(dim), torch.zeros(dim))))

    def forward(self, x: Tensor, x0: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """The residual stream `[B, T, d]` after this block; `x0` is the stream before the first one."""
        mix = self.resid_mix.to(x.dtype)
        x = mix[0] * x + mix[1] * x0
        x = x + self.attn_scale.to(x.dtype) * self.attn(rms_norm(x), cos, sin)
        return x + self.mlp_scale.to(x.dtype) * self.mlp(rms_norm(x))


class GPT(nn.Module):
    """Token ids `[B, T]` to logits `[B, T, V]`; called with targets too, it gives the mean loss in nats."""

    def __init__(self, cfg: ModelConfig):
        super().__init__()
        self.cfg = cfg
        self.tok_emb = nn.Embedding(cfg.vocab_size, cfg.model_dim)
        self.num_encoder_layers = cfg.num_layers // 2
        self.skip_weights = nn.Parameter(torch.ones(self.num_encoder_layers, cfg.model_dim))
        self.blocks = nn.ModuleList(Block(cfg) for _ in range(cfg.num_layers))
        self.lm_head = None if cfg.tie_embeddings else CastedLinear(cfg.model_dim, cfg.vocab_size, zero_init=True)
        if cfg.tie_embeddings:
            nn.init.normal_(self.tok_emb.weight, std=cfg.tied_embed_init_std)
        self.tok_emb.to(embed_dtype(cfg.compute_dtype))

    def forward(self, input_ids: Tensor, target_ids: Tensor) -> Tensor:
        """Mean cross-entropy in nats per token (scalar, float32) of `target_ids` `[B, T]` given `input_ids`."""
        return self.token_losses(input_ids, target_ids).mean()

    def token_losses(self, input_ids: Tensor, target_ids: Tensor) -> Tensor:
        """Cross-entropy in nats of every target, `[B, T]` float32."""
        logits = self.logits(input_ids).float().flatten(0, 1)
        return F.cross_entropy(logits, target_ids.flatten(), reduction="none").view(target_ids.shape)

    def logits(self, input_ids: Tensor) -> Tensor:
        """Next-token logits `[B, T, V]` in the compute dtype, softly capped to ±`logit_softcap`."""
        return self.softcap(self.head(self.hidden(input_ids)))

    def head(self, x: Tensor) -> Tensor:
        """Raw logits `[..., V]` of normalised hidden states `[..., d]`."""
        return F.linear(x, self.tok_emb.weight) if self.lm_head is None else self.lm_head(x)

    def softcap(self, logits: Tensor) -> Tensor:
        return self.cfg.logit_softcap * torch.tanh(logits / self.cfg.logit_softcap)

    def hidden(self, input_ids: Tensor) -> Tensor:
        """Normalised output of the last block, `[B, T, d]`.

        The first half of the layers stores its outputs, the second half adds them back last in, first out.
        """
        x = x0 = rms_norm(self.tok_emb(input_ids))
        head_dim = self.cfg.model_dim // self.cfg.num_heads
        cos, sin = rotary_tables(input_ids.size(1), head_dim, self.cfg.rope_base, like=x)
        skips: list[Tensor] = []
        for i, block in enumerate(self.blocks):
            if i >= self.num_encoder_layers and skips:
                x = x + self.skip_weights[i - self.num_encoder_layers].to(x.dtype) * skips.pop()
            x = block(x, x0, cos, sin)
            if i < self.num_encoder_layers:
                skips.append(x)
        return rms_norm(x)


def build_model(cfg: Config) -> GPT:
    """The model of `cfg` on the CPU, initialised from `cfg.seed` without touching the global random state."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(cfg.seed)
        return GPT(cfg.model)
