"""The gated delta rule by the Triton kernels of flash-linear-attention, on GPUs where it is installed."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from golf.errors import GolfError


@functools.cache
def fla_function() -> Callable[..., Any]:
    """Return the library's function. Raises `GolfError` if it cannot be imported."""
    try:
        return importlib.import_module("fla.ops.gated_delta_rule").chunk_gated_delta_rule
    except (ImportError, AttributeError, OSError) as error:
        raise GolfError(
            f"tech.gated_deltanet.kernel=fla needs the package flash-linear-attention, and importing it fails "
            f"({error}): pip install flash-linear-attention, or use tech.gated_deltanet.kernel=torch."
        ) from error


def piece_ends(starts: Tensor) -> Tensor:
    """Return where the pieces of the flat batch begin, and its end, int64 `[pieces + 1]`; `starts` is `[B, T]`."""
    # Rows of one document have equal starts, and each begins a piece.
    begins = torch.ones_like(starts, dtype=torch.bool)
    begins[:, 1:] = starts[:, 1:] != starts[:, :-1]
    return F.pad(begins.flatten().nonzero().flatten(), (0, 1), value=starts.numel())


def delta_rule_of_fla(
    q: Tensor, k: Tensor, v: Tensor, gates: tuple[Tensor, Tensor], starts: Tensor, dtype: torch.dtype
) -> Tensor:
    """Return what `delta_rule` returns, `[B, T, H, V]`; queries, keys and values are read in `dtype`."""
    # A batch of one row, in which the table says where the pieces are.
    q, k, v, g, beta = (t.flatten(0, 1)[None] for t in (q.to(dtype), k.to(dtype), v.to(dtype), *gates))
    o, _ = fla_function()(q, k, v, g=g, beta=beta, scale=1.0, cu_seqlens=piece_ends(starts))
    return o.view(*starts.shape, *v.shape[2:]).to(gates[0].dtype)
