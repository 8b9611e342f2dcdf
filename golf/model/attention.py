"""Causal grouped-query self-attention. The only module that knows which attention kernel runs."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from golf.config import ModelConfig
from golf.model.layers import CastedLinear, rms_norm
from golf.model.rotary import apply_rotary


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal softmax attention at scale 1/√D: `q` is `[B, T, H, D]`, `k` and `v` are `[B, T, K, D]`, H % K = 0."""
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.size(1) != k.size(1))
    return y.transpose(1, 2)


def choose_kernel(device: torch.device, *compute_dtypes: str) -> str:
    """Set which SDPA kernels may run and return the log line that names them.

    A GPU that computes in bf16 only uses flash attention alone, as the public scripts do; flash needs 16-bit
    inputs, so other combinations keep torch's own choice.
    """
    if device.type == "cuda" and set(compute_dtypes) == {"bf16"}:
        torch.backends.cuda.enable_flash_sdp(True)
        torch.backends.cuda.enable_cudnn_sdp(False)
        torch.backends.cuda.enable_mem_efficient_sdp(False)
        torch.backends.cuda.enable_math_sdp(False)
        return "sdp_backends:cudnn=False flash=True mem_efficient=False math=False"
    return f"sdp_backends:default device={device.type}"


class CausalSelfAttention(nn.Module):
    """Attention with RMS-normalised queries and keys per head and a learned gain per query head."""

    def __init__(self, cfg: ModelConfig):
        super().__init__()
        dim, self.head_dim = cfg.model_dim, cfg.model_dim // cfg.num_heads
        self.c_q = CastedLinear(dim, dim)
        self.c_k = CastedLinear(dim, cfg.num_kv_heads * self.head_dim)
        self.c_v = CastedLinear(dim, cfg.num_kv_heads * self.head_dim)
        self.proj = CastedLinear(dim, dim, zero_init=True)
        self.q_gain = nn.Parameter(torch.full((cfg.num_heads,), cfg.qk_gain_init))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        heads = (*x.shape[:2], -1, self.head_dim)  # [B, T, H or K, D]
        q, k, v = self.c_q(x).view(heads), self.c_k(x).view(heads), self.c_v(x).view(heads)
        q = apply_rotary(rms_norm(q), cos, sin) * self.q_gain.to(x.dtype)[:, None]
        k = apply_rotary(rms_norm(k), cos, sin)
        return self.proj(attend(q, k, v).reshape(x.shape))
