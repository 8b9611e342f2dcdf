"""The MLP W₂ · (leaky(W₁x))² in Triton: the activation and its derivative are computed where the products are made.

One persistent kernel over tensor descriptors, as in the records from 2026-04-10 on: forward C = leaky(x·W₁ᵀ)² beside
x·W₁ᵀ, backward (dy·W₂) ⊙ derivative. The other products are cuBLAS's. Sums are in float32.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor


class Tile(NamedTuple):
    """The part of a product that a program computes at a time, and how it is pipelined."""

    rows: int = 128
    columns: int = 256
    depth: int = 64
    warps: int = 8
    stages: int = 4


FORWARD, BACKWARD = Tile(), Tile(stages=3)


@triton.jit
def product_kernel(
    a,
    b,
    hidden,
    out,
    rows,
    columns,
    depth,
    slope: tl.constexpr,
    is_backward: tl.constexpr,
    tile_rows: tl.constexpr,
    tile_columns: tl.constexpr,
    tile_depth: tl.constexpr,
):
    """Write tiles of `hidden` = a·bᵀ and `out` = leaky(hidden)², or backward of `out` = (a·b) ⊙ derivative at `hidden`.

    Descriptors: `a` [rows, depth], `b` [columns, depth] or backward [depth, columns], the others [rows, columns].
    """
    tiles_across = tl.cdiv(columns, tile_columns)
    # Programs that run together read the same rows of `a`, and all of `b`, which fits the cache.
    for tile in tl.range(tl.program_id(0), tl.cdiv(rows, tile_rows) * tiles_across, tl.num_programs(0), flatten=True):
        row, column = tile // tiles_across * tile_rows, tile % tiles_across * tile_columns
        total = tl.zeros([tile_rows, tile_columns], tl.float32)
        for k in range(0, depth, tile_depth):
            x = a.load([row, k])
            y = b.load([k, column]) if is_backward else b.load([column, k]).T
            total = tl.dot(x, y, total)
        # In two halves, because a whole tile of results has no room beside the operands.
        left, right = tl.split(tl.permute(tl.reshape(total, [tile_rows, 2, tile_columns // 2]), [0, 2, 1]))
        for half in tl.static_range(2):
            part = left if half == 0 else right
            at = column + half * (tile_columns // 2)
            if is_backward:
                h = hidden.load([row, at]).to(tl.float32)
                out.store([row, at], (part * tl.where(h > 0, 2 * h, 2 * slope * slope * h)).to(out.dtype))
            else:
                rounded = part.to(out.dtype)
                hidden.store([row, at], rounded)
                h = rounded.to(tl.float32)
                h = tl.where(h > 0, h, slope * h)
                out.store([row, at], (h * h).to(out.dtype))


def run_product(a: Tensor, b: Tensor, hidden: Tensor, out: Tensor, slope: float, tile: Tile, *, backward: bool) -> None:
    """Fill `out`, and unless `backward` also `hidden`, both `[rows, columns]`; see `product_kernel`."""
    half = [tile.rows, tile.columns // 2]
    blocks = [tile.rows, tile.depth], [tile.depth, tile.columns] if backward else [tile.columns, tile.depth], half, half
    descriptors = [TensorDescriptor.from_tensor(t, block) for t, block in zip((a, b, hidden, out), blocks, strict=True)]
    (rows, columns), depth = out.shape, a.size(1)
    programs = min(triton.cdiv(rows, tile.rows) * triton.cdiv(columns, tile.columns), _processors(a.device))
    sizes, block = (rows, columns, depth), (tile.rows, tile.columns, tile.depth)
    kernel = product_kernel[(programs,)]
    kernel(*descriptors, *sizes, slope, backward, *block, num_warps=tile.warps, num_stages=tile.stages)


def _processors(device: torch.device) -> int:
    """Return the multiprocessors of a GPU: a persistent kernel has one program on each."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2


@torch.library.custom_op("golf::squared_mlp", mutates_args=())
def squared_mlp(x: Tensor, up: Tensor, down: Tensor, slope: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return output `[N, d]`, x·W₁ᵀ and its activation `[N, F]` of `x` `[N, d]`, W₁ `[F, d]` and W₂ `[d, F]`."""
    x, up = x.contiguous(), up.contiguous()
    hidden, activated = (x.new_empty(len(x), len(up)) for _ in range(2))
    run_product(x, up, hidden, activated, slope, FORWARD, backward=False)
    return activated @ down.T, hidden, activated


@torch.library.custom_op("golf::squared_mlp_gradient", mutates_args=())
def squared_mlp_gradient(grad: Tensor, down: Tensor, hidden: Tensor, slope: float) -> Tensor:
    """Return the gradient `[N, F]` of x·W₁ᵀ = `hidden`, given `grad` `[N, d]` of the output and W₂ `[d, F]`."""
    grad, down, hidden = grad.contiguous(), down.contiguous(), hidden.contiguous()
    out = torch.empty_like(hidden)
    run_product(grad, down, hidden, out, slope, BACKWARD, backward=True)
    return out


@squared_mlp.register_fake
def _(x: Tensor, up: Tensor, down: Tensor, slope: float) -> tuple[Tensor, Tensor, Tensor]:
    return x.new_empty(len(x), len(down)), x.new_empty(len(x), len(up)), x.new_empty(len(x), len(up))


@squared_mlp_gradient.register_fake
def _(grad: Tensor, down: Tensor, hidden: Tensor, slope: float) -> Tensor:
    return torch.empty_like(hidden, memory_format=torch.contiguous_format)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    x, up, down, ctx.slope = inputs
    _, hidden, activated = output
    ctx.save_for_backward(x, up, down, hidden, activated)
    ctx.mark_non_differentiable(hidden, activated)
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad: Tensor, *_: None) -> tuple[Tensor, Tensor, Tensor, None]:
    x, up, down, hidden, activated = ctx.saved_tensors
    of_hidden = squared_mlp_gradient(grad, down, hidden, ctx.slope)
    return of_hidden @ up, of_hidden.T @ x, grad.T @ activated, None


squared_mlp.register_autograd(_backward, setup_context=_keep)


def fused_mlp(x: Tensor, up: Tensor, down: Tensor, slope: float) -> Tensor:
    """Return (leaky(x·W₁ᵀ))²·W₂ᵀ `[..., d]` of `x` `[..., d]`, W₁ `[F, d]` and W₂ `[d, F]`, all of one dtype."""
    return squared_mlp(x.flatten(0, -2), up, down, slope)[0].view(x.shape)
