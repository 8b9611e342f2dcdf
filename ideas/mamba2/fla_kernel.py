"""The scan of Mamba-2 by the Triton kernels of flash-linear-attention, on GPUs where it is installed."""

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
    """Return the library's function for states with one decay a head. Raises `GolfError` if it cannot be imported."""
    try:
        return importlib.import_module("fla.ops.simple_gla").chunk_simple_gla
    except (ImportError, AttributeError, OSError) as error:
        raise GolfError(
            f"tech.mamba2.kernel=fla needs the package flash-linear-attention, and importing it fails "
            f"({error}): pip install flash-linear-attention, or use tech.mamba2.kernel=torch."
        ) from error


def piece_ends(starts: Tensor) -> Tensor:
    """Return where the pieces of the flat batch begin, and its end, int64 `[pieces + 1]`; `starts` is `[B, T]`."""
    # Rows of one document have equal starts, and each begins a piece.
    begins = torch.ones_like(starts, dtype=torch.bool)
    begins[:, 1:] = starts[:, 1:] != starts[:, :-1]
    return F.pad(begins.flatten().nonzero().flatten(), (0, 1), value=starts.numel())


def scan_of_fla(c: Tensor, b: Tensor, x: Tensor, log: Tensor, starts: Tensor, dtype: torch.dtype) -> Tensor:
    """Return what `scan` returns, `[B, T, H, P]`; states are read and written in `dtype`."""
    # The library wants queries and keys for each head, and a batch of one row, whose pieces the table tells.
    c, b = (t[:, :, None].expand(*x.shape[:3], -1).to(dtype) for t in (c, b))
    c, b, values, log = (t.flatten(0, 1)[None] for t in (c, b, x.to(dtype), log))
    o, _ = fla_function()(c, b, values, g=log, scale=1.0, cu_seqlens=piece_ends(starts))
    return o.view_as(x).to(x.dtype)
