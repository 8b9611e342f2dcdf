"""Modules that stand in for flash-attn's: they refuse what the real ones refuse and compute by torch's own kernel."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bench.fake_cuda import require_flash_inputs


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Compute causal attention of `[B, T, H, D]` tensors, as the packages lay them out."""
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2)


def attend_varying(q: Tensor, k: Tensor, v: Tensor, starts: Tensor, longest: int) -> Tensor:
    """Compute causal attention of `[n, H, D]` tensors within the pieces between `starts`, which end with n."""
    assert starts.dtype == torch.int32 and starts[0] == 0 and starts[-1] == len(q)
    sizes = starts.diff().tolist()
    assert max(sizes) <= longest and min(sizes) >= 0
    pieces = zip(*(t.split(sizes) for t in (q, k, v)), strict=True)
    return torch.cat([attend(*(t[None] for t in piece))[0] for piece in pieces if len(piece[0])])


def flash_attention_2() -> ModuleType:
    """Return a module `flash_attn` with the calls of version 2."""

    def flash_attn_func(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        dropout_p: float = 0.0,
        softmax_scale: float | None = None,
        causal: bool = False,
    ) -> Tensor:
        require_flash_inputs(q, k, v)
        assert causal and dropout_p == 0.0
        return attend(q, k, v)

    def flash_attn_varlen_func(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        cu_seqlens_q: Tensor,
        cu_seqlens_k: Tensor,
        max_seqlen_q: int,
        max_seqlen_k: int,
        dropout_p: float = 0.0,
        softmax_scale: float | None = None,
        causal: bool = False,
    ) -> Tensor:
        require_flash_inputs(q[None], k[None], v[None])
        assert causal and dropout_p == 0.0 and cu_seqlens_q is cu_seqlens_k and max_seqlen_q == max_seqlen_k
        return attend_varying(q, k, v, cu_seqlens_q, max_seqlen_q)

    return _module("flash_attn", flash_attn_func, flash_attn_varlen_func, "2.8.3")


def flash_attention_3(*, returns_statistics: bool = False) -> ModuleType:
    """Return a module `flash_attn_interface`; older versions of it return the softmax statistics, too."""

    def flash_attn_func(
        q: Tensor, k: Tensor, v: Tensor, softmax_scale: float | None = None, causal: bool = False
    ) -> Tensor | tuple[Tensor, Tensor]:
        require_flash_inputs(q, k, v)
        assert causal and softmax_scale is None
        y = attend(q, k, v)
        return (y, torch.zeros(q.shape[:3])) if returns_statistics else y

    def flash_attn_varlen_func(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        cu_seqlens_q: Tensor,
        cu_seqlens_k: Tensor,
        max_seqlen_q: int,
        max_seqlen_k: int,
        seqused_q: Tensor | None = None,
        seqused_k: Tensor | None = None,
        softmax_scale: float | None = None,
        causal: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        require_flash_inputs(q[None], k[None], v[None])
        assert causal and seqused_q is None and seqused_k is None and cu_seqlens_q is cu_seqlens_k
        y = attend_varying(q, k, v, cu_seqlens_q, max_seqlen_q)
        return (y, torch.zeros(q.shape[:2])) if returns_statistics else y

    return _module("flash_attn_interface", flash_attn_func, flash_attn_varlen_func, "3.0.0")


def torch_varlen(*, tells_shared_heads: bool = True) -> ModuleType:
    """Return `torch.nn.attention.varlen` of torch 2.13, or of 2.11, which is not told that heads share keys."""

    def attend_pieces(q: Tensor, k: Tensor, v: Tensor, starts: Tensor, longest: int, window: tuple[int, int]) -> Tensor:
        require_flash_inputs(q[None], k[None], v[None])
        assert window == (-1, 0)
        return attend_varying(q, k, v, starts, longest)

    def varlen_attn(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        cu_seq_q: Tensor,
        cu_seq_k: Tensor | None,
        max_q: int,
        max_k: int,
        *,
        return_aux: object = None,
        scale: float | None = None,
        window_size: tuple[int, int] = (-1, -1),
        enable_gqa: bool = False,
    ) -> Tensor:
        assert enable_gqa and cu_seq_q is cu_seq_k and max_q == max_k and scale is return_aux is None
        return attend_pieces(query, key, value, cu_seq_q, max_q, window_size)

    def older(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        cu_seq_q: Tensor,
        cu_seq_k: Tensor,
        max_q: int,
        max_k: int,
        *,
        return_aux: object = None,
        scale: float | None = None,
        window_size: tuple[int, int] = (-1, -1),
    ) -> Tensor:
        return varlen_attn(
            query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, window_size=window_size, enable_gqa=True
        )

    module = ModuleType("torch.nn.attention.varlen")
    module.varlen_attn = varlen_attn if tells_shared_heads else older  # type: ignore[attr-defined]
    return module


def flash_attention_4() -> ModuleType:
    """Return the package of version 4, which has the name of version 2 and not its function."""
    module = ModuleType("flash_attn")
    module.__version__ = "4.0.0b1"  # type: ignore[attr-defined]
    return module


def install(monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> None:
    """Let the test import `modules`, and no other of these packages."""
    for name in ("flash_attn", "flash_attn_interface"):
        monkeypatch.setitem(sys.modules, name, None)
    for module in modules:
        monkeypatch.setitem(sys.modules, module.__name__, module)


def _module(name: str, function: object, varying: object, version: str) -> ModuleType:
    module = ModuleType(name)
    module.flash_attn_func = function  # type: ignore[attr-defined]
    module.flash_attn_varlen_func = varying  # type: ignore[attr-defined]
    module.__version__ = version  # type: ignore[attr-defined]
    return module
