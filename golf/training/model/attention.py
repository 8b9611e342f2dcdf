"""Causal grouped-query self-attention. The only module that knows which attention kernel runs."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from golf.errors import GolfError
from golf.settings.config import Config, ModelConfig
from golf.training.model.eager_cpu import suits_eager_cpu
from golf.training.model.eager_cpu.attention import LONGEST, attend_in_blocks
from golf.training.model.layers import CastedLinear, Context, RMSNorm
from golf.training.model.rotary import apply_rotary

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
FLASH_MODULES = {"fa2": "flash_attn", "fa3": "flash_attn_interface"}


def attend_sdpa(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Compute causal softmax attention at scale 1/√D: `q` `[B, T, H, D]`, `k` and `v` `[B, T, K, D]`, H % K = 0."""
    # Only in training: without a backward pass torch's kernel is as fast or faster.
    if suits_eager_cpu(q) and q.requires_grad and q.size(1) <= LONGEST:
        return attend_in_blocks(q, k, v)
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.size(1) != k.size(1))
    return y.transpose(1, 2)


def kernel(backend: str) -> Attend:
    """Return the function behind `model.attention`. Raises `GolfError` if its library is not installed."""
    if backend not in FLASH_MODULES:
        return attend_sdpa
    try:
        flash_attn_func = importlib.import_module(FLASH_MODULES[backend]).flash_attn_func
    except ImportError as error:
        raise GolfError(
            f"model.attention={backend} needs the package {FLASH_MODULES[backend]}, and importing it fails ({error}): "
            "install it or use model.attention=sdpa."
        ) from error

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        y = flash_attn_func(q, k, v, causal=True)
        return y[0] if isinstance(y, tuple) else y  # some versions of FA3 return the softmax statistics, too

    return attend


def choose_kernel(device: torch.device, cfg: Config) -> str:
    """Choose which SDPA kernels may run. Returns the log line that names the kernel.

    A GPU that computes in bf16 only gets flash attention alone, as in the public scripts, or cuDNN's. Flash attention
    needs 16-bit inputs, so other combinations keep torch's own choice.
    """
    backend = cfg.model.attention
    if backend in FLASH_MODULES:
        return f"attention_kernel:{FLASH_MODULES[backend]}"
    if device.type == "cuda" and {cfg.model.compute_dtype, cfg.eval.dtype} == {"bf16"}:
        cudnn = backend == "cudnn"
        torch.backends.cuda.enable_flash_sdp(not cudnn)
        torch.backends.cuda.enable_cudnn_sdp(cudnn)
        torch.backends.cuda.enable_mem_efficient_sdp(False)
        torch.backends.cuda.enable_math_sdp(False)
        return f"sdp_backends:cudnn={cudnn} flash={not cudnn} mem_efficient=False math=False"
    return f"sdp_backends:default device={device.type}"


def project_separately(attn: CausalSelfAttention, x: Tensor, active: tuple[str, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """Project `x` to queries `[B, T, H·D]`, keys and values `[B, T, K·D]`, by one matrix each."""
    return attn.c_q(x, active), attn.c_k(x, active), attn.c_v(x, active)


class CausalSelfAttention(nn.Module):
    """Attention with RMS-normalised queries and keys per head and a learned gain per query head.

    Techniques edit `project`, and append to `value_hooks` (attn, v, context → v) and `output_hooks`
    (attn, y, v, x → y), with y `[B, T, H, D]`, v `[B, T, K, D]` and x the normalised input.
    """

    def __init__(self, cfg: ModelConfig):
        super().__init__()
        dim, self.head_dim = cfg.model_dim, cfg.model_dim // cfg.num_heads
        self.c_q = CastedLinear(dim, dim)
        self.c_k = CastedLinear(dim, cfg.num_kv_heads * self.head_dim)
        self.c_v = CastedLinear(dim, cfg.num_kv_heads * self.head_dim)
        self.proj = CastedLinear(dim, dim, zero_init=True)
        self.q_gain = nn.Parameter(torch.full((cfg.num_heads,), cfg.qk_gain_init))
        self.qk_norm = RMSNorm()
        self.attend = kernel(cfg.attention)
        self.project: Callable[..., tuple[Tensor, Tensor, Tensor]] = project_separately
        self.value_hooks: list[Callable[[CausalSelfAttention, Tensor, Context], Tensor]] = []
        self.output_hooks: list[Callable[[CausalSelfAttention, Tensor, Tensor, Tensor], Tensor]] = []

    def forward(self, x: Tensor, context: Context) -> Tensor:
        heads = (*x.shape[:2], -1, self.head_dim)  # [B, T, H or K, D]
        q, k, v = (t.view(heads) for t in self.project(self, x, context.active))
        for mix in self.value_hooks:
            v = mix(self, v, context)
        q = apply_rotary(self.qk_norm(q), context.cos, context.sin) * self.q_gain.to(x.dtype)[:, None]
        k = apply_rotary(self.qk_norm(k), context.cos, context.sin)
        y = self.attend(q, k, v)
        for edit in self.output_hooks:
            y = edit(self, y, v, x)
        return self.proj(y.reshape(x.shape), context.active)
