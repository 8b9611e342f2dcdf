"""Causal grouped-query self-attention. The only module that knows which attention kernel runs."""

from __future__ import annotations

import contextlib
import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from golf.errors import GolfError
from golf.settings.config import Config, ModelConfig
from golf.training.model.eager_cpu import (
    LONGEST,
    attend_in_blocks,
    attends_in_float32,
    suits_eager_cpu,
    turn_unit_heads,
)
from golf.training.model.layers import CastedLinear, Context, RMSNorm, embed_dtype, in_order
from golf.training.model.rotary import apply_rotary

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
AttendVarying = Callable[[Tensor, Tensor, Tensor, Tensor, int], Tensor]
KeyHook = Callable[["CausalSelfAttention", Tensor, Context], Tensor]
ValueHook = Callable[["CausalSelfAttention", Tensor, Context], Tensor]
OutputHook = Callable[["CausalSelfAttention", Tensor, Tensor, Tensor], Tensor]
FLASH_MODULES = {"fa2": "flash_attn", "fa3": "flash_attn_interface"}
TORCH_VARLEN = "torch.nn.attention.varlen"
CPU_KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]
TRIED_SHAPE = (1, 128)  # sequences and tokens of the call that tries a kernel


def attend_sdpa(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Compute causal softmax attention at scale 1/√D: `q` `[B, T, H, D]`, `k` and `v` `[B, T, K, D]`, H % K = 0."""
    if attends_in_float32(q):
        return attend_sdpa(q.float(), k.float(), v.float()).to(q.dtype)
    # Only in training: without a backward pass torch's kernel is as fast or faster.
    if suits_eager_cpu(q) and q.dtype == torch.float32 and q.requires_grad and q.size(1) <= LONGEST:
        return attend_in_blocks(q, k, v)
    # The model keeps tokens before heads, as flash attention reads them. torch's kernel wants heads first.
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.size(1) != k.size(1)).transpose(1, 2)


def is_flash(cfg: ModelConfig) -> bool:
    """Tell whether the library behind `model.attention` is one of flash attention's own, not torch."""
    return cfg.attention in ("fa2", "fa3")


def kernel(cfg: ModelConfig) -> Attend:
    """Return the function behind `model.attention`. Raises `GolfError` if its library cannot be used."""
    if not is_flash(cfg):
        return attend_sdpa
    flash_attn_func = _flash_function(cfg.attention, "flash_attn_func")

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        y = flash_attn_func(q, k, v, causal=True)
        # Some versions of FA3 return the softmax statistics, too.
        return y[0] if isinstance(y, tuple) else y

    return attend


def variable_length_kernel(cfg: ModelConfig) -> AttendVarying | None:
    """Return causal attention within pieces of a row by the kernel behind `model.attention`; None if it has no such.

    It takes `q` `[n, H, D]`, `k` and `v` `[n, K, D]`, where the pieces begin and the last ends, int32, and the longest
    piece in tokens. Raises `GolfError` if the library cannot be used.
    """
    if cfg.attention == "varlen":
        return _torch_varlen()
    if not is_flash(cfg):
        return None
    call = _flash_function(cfg.attention, "flash_attn_varlen_func")

    def attend(q: Tensor, k: Tensor, v: Tensor, starts: Tensor, longest: int) -> Tensor:
        y = call(
            q, k, v, cu_seqlens_q=starts, cu_seqlens_k=starts, max_seqlen_q=longest, max_seqlen_k=longest, causal=True
        )
        return y[0] if isinstance(y, tuple) else y

    return attend


def _torch_varlen() -> AttendVarying:
    # Imported here, because it imports the compiler.
    call = importlib.import_module(TORCH_VARLEN).varlen_attn
    # Torch 2.11 takes fewer heads of keys without being told.
    shared = {"enable_gqa": True} if "enable_gqa" in inspect.signature(call).parameters else {}

    def attend(q: Tensor, k: Tensor, v: Tensor, starts: Tensor, longest: int) -> Tensor:
        return call(q, k, v, starts, starts, longest, longest, window_size=(-1, 0), **shared)

    return attend


def _flash_function(backend: str, name: str) -> Callable[..., Any]:
    """Return function `name` of the library behind `backend`. Raises `GolfError` if it cannot be imported."""
    module = FLASH_MODULES[backend]
    try:
        # A package for another torch fails here with OSError, and other packages share flash-attn's name.
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, OSError) as error:
        raise GolfError(
            f"model.attention={backend} needs {name} of the package {module}, and importing it fails ({error}): "
            "install the package for this torch or use model.attention=sdpa."
        ) from error


def choose_kernel(device: torch.device, cfg: Config) -> str:
    """Choose which SDPA kernels may run. Returns the log line that names the kernel.

    A GPU that computes in bf16 only gets flash attention alone, as in the public scripts, or cuDNN's. Flash attention
    needs 16-bit inputs, so other combinations keep torch's own choice.
    """
    backend = cfg.model.attention
    if is_flash(cfg.model):
        module = importlib.import_module(FLASH_MODULES[backend])
        return f"attention_kernel:{module.__name__} {getattr(module, '__version__', '')}".strip()
    if device.type == "cuda" and {cfg.model.compute_dtype, cfg.eval.dtype} == {"bf16"}:
        cudnn = backend == "cudnn"
        torch.backends.cuda.enable_flash_sdp(not cudnn)
        torch.backends.cuda.enable_cudnn_sdp(cudnn)
        # Attention within documents passes a mask, which neither of the two takes, unless its kernel has a table.
        masked = cfg.eval.documents and backend != "varlen"
        torch.backends.cuda.enable_mem_efficient_sdp(masked)
        # Without this slow fallback, inputs that no fast kernel takes are an error and not a slow run.
        torch.backends.cuda.enable_math_sdp(False)
        line = f"sdp_backends:cudnn={cudnn} flash={not cudnn} mem_efficient={masked} math=False"
        return f"{line} documents:{TORCH_VARLEN}" if backend == "varlen" else line
    return f"sdp_backends:default device={device.type}"


@contextlib.contextmanager
def cpu_kernels() -> Iterator[None]:
    """Let attention run on a CPU in the block, whatever `choose_kernel` chose for the GPU.

    The choice is the process's, not the device's: without flash and math no kernel is left for tensors on a CPU.
    """
    with sdpa_kernel(CPU_KERNELS):
        yield


def try_kernel(device: torch.device, cfg: ModelConfig, attend: Attend | None = None) -> None:
    """Run attention, or `attend` for it, forward and backward on a few tokens. Raises `GolfError` if that fails.

    A wheel can be imported and still lack the kernels for this GPU, or refuse this width of a head.
    """
    head_dim, dtype = cfg.model_dim // cfg.num_heads, embed_dtype(cfg.compute_dtype)
    q, k = (
        torch.ones(*TRIED_SHAPE, heads, head_dim, device=device, dtype=dtype, requires_grad=True)
        for heads in (cfg.num_heads, cfg.num_kv_heads)
    )
    try:
        (attend or kernel(cfg))(q, k, k).sum().backward()
    # Libraries refuse a shape or a GPU by any of these errors.
    except (RuntimeError, ValueError, AssertionError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise GolfError(
            f"model.attention={cfg.attention} fails{' within documents' if attend else ''} on this {device.type} "
            f"device with heads of {head_dim} channels ({reason}): use model.attention=sdpa."
        ) from error


def attend_to_all(attn: CausalSelfAttention, q: Tensor, k: Tensor, v: Tensor, context: Context) -> Tensor:
    """Attend to every earlier token of the row."""
    return attn.attend(q, k, v)


def project_separately(attn: CausalSelfAttention, x: Tensor, active: tuple[str, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """Project `x` to queries `[B, T, H·D]`, keys and values `[B, T, K·D]`, by one matrix each."""
    return attn.c_q(x, active), attn.c_k(x, active), attn.c_v(x, active)


def turns_whole_heads(context: Context, head_dim: int) -> bool:
    """Tell whether all channels turn, by one table for all rows."""
    return 2 * context.cos.size(-1) == head_dim and context.cos.size(0) == 1


class CausalSelfAttention(nn.Module):
    """Attention with RMS-normalised queries and keys per head and a learned gain per query head.

    Slots: `core` (attn, q, k, v, context → y: which tokens attend to which), `project`, and the fields of `qk_norm`.
    Hooks by phase: `key_hooks` (attn, k, context → k, before norm and rotary), `value_hooks` (attn, v, context → v;
    in both terms are added before layers are mixed) and `output_hooks` (attn, y, v, x → y; the own value is excluded
    before heads are gated), with y `[B, T, H, D]`, k and v `[B, T, K, D]` and x the normalised input.
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
        self.attend = kernel(cfg)
        self.core: Callable[[CausalSelfAttention, Tensor, Tensor, Tensor, Context], Tensor] = attend_to_all
        self.project: Callable[..., tuple[Tensor, Tensor, Tensor]] = project_separately
        self.key_hooks: dict[str, list[KeyHook]] = {"add": [], "mix": []}
        self.value_hooks: dict[str, list[ValueHook]] = {"add": [], "mix": []}
        self.output_hooks: dict[str, list[OutputHook]] = {"exclude": [], "gate": []}

    def forward(self, x: Tensor, context: Context) -> Tensor:
        heads, active = (*x.shape[:2], -1, self.head_dim), context.active  # [B, T, H or K, D]
        layer = self.layer(context)
        q, k, v = (t.view(heads) for t in layer.project(layer, x, active))
        for mix in in_order(self.key_hooks):
            k = mix(self, k, context)
        for mix in in_order(self.value_hooks):
            v = mix(self, v, context)
        # Queries and keys have unit RMS, so the gain decides how sharp a head's softmax can be.
        if suits_eager_cpu(q) and type(self.qk_norm) is RMSNorm and turns_whole_heads(context, self.head_dim):
            # All rows share one table here, and all channels turn.
            norm, tables = self.qk_norm, (context.cos, context.sin)
            q = turn_unit_heads(q, self.q_gain * norm.factor, *tables, norm.eps)
            k = turn_unit_heads(k, self.q_gain.new_full((k.size(2),), norm.factor), *tables, norm.eps)
        else:
            q = apply_rotary(self.qk_norm(q), context.cos, context.sin) * self.q_gain.to(x.dtype)[:, None]
            k = apply_rotary(self.qk_norm(k), context.cos, context.sin)
        y = layer.core(layer, q, k, v, context)
        for edit in in_order(self.output_hooks):
            y = edit(self, y, v, x)
        return layer.proj(y.reshape(x.shape), active)

    def layer(self, context: Context) -> CausalSelfAttention:
        """Return the attention whose matrices are used: this one."""
        return self
