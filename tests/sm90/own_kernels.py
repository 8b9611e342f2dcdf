"""Golf's kernels in Triton compiled for compute capability 9.0 without a GPU: `python own_kernels.py` prints JSON.

For each: bytes of machine code and of shared memory, bytes of the stack that registers were spilled to, the
instructions that only Hopper has, and rows whose offset has 32 bits, which is wrong from 2³¹ elements on.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from golf.training.model.kernels import triton_loss, triton_mlp

H100 = GPUTarget("cuda", 90, 32)
TYPES = {"targets": "*i64", "vocabulary": "i32", "cap": "fp32", "rows": "i32", "columns": "i32", "depth": "i32"}
CUOBJDUMP = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"


def compiled(function: Any, types: dict[str, str], constants: dict[str, Any], **options: int) -> dict[str, Any]:
    """Return what `function` needs on an H100; its parameters are of `types`, else of `TYPES`, or `constants`."""
    signature = {p: "constexpr" if p in constants else types.get(p) or TYPES[p] for p in function.arg_names}
    made = triton.compile(ASTSource(function, signature, constants), target=H100, options=options)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(made.asm["cubin"])
        usage = subprocess.run([CUOBJDUMP, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    ptx = made.asm["ptx"]
    return {
        "cubin": len(made.asm["cubin"]),
        "shared": made.metadata.shared,
        "stack": max(int(size) for size in re.findall(r"STACK:(\d+)", usage)),
        "wgmma": ptx.count("wgmma.mma_async"),
        "tma": ptx.count("cp.async.bulk.tensor"),
        "narrow": len(re.findall(r"tt\.addptr .*: !tt\.ptr<\w+>, i32", made.asm["ttir"])),
    }


def loss_kernels(logits: str) -> dict[str, Any]:
    """Return both kernels of the loss for logits of a dtype."""
    pointers = dict.fromkeys(("losses", "totals", "grad"), "*fp32") | {"logits": f"*{logits}", "out": f"*{logits}"}
    kernels = {"losses": triton_loss.losses_kernel, "gradient": triton_loss.gradient_kernel}
    block = {"block": triton_loss.COLUMNS}
    return {f"{name} {logits}": compiled(kernel, pointers, block) for name, kernel in kernels.items()}


def mlp_kernel(slope: float, *, backward: bool) -> dict[str, Any]:
    """Return the kernel of the MLP in one direction, with the tiles that it has on a GPU."""
    tile = triton_mlp.BACKWARD if backward else triton_mlp.FORWARD
    half = f"tensordesc<bf16[{tile.rows},{tile.columns // 2}]>"
    b = (tile.depth, tile.columns) if backward else (tile.columns, tile.depth)
    blocks = {"a": f"tensordesc<bf16[{tile.rows},{tile.depth}]>", "b": f"tensordesc<bf16[{b[0]},{b[1]}]>"}
    sizes = {"tile_rows": tile.rows, "tile_columns": tile.columns, "tile_depth": tile.depth}
    return compiled(
        triton_mlp.product_kernel,
        {**blocks, "hidden": half, "out": half},
        {"slope": slope, "is_backward": backward, **sizes},
        num_warps=tile.warps,
        num_stages=tile.stages,
    )


def main() -> None:
    """Print the findings for both dtypes of logits, and for ReLU² and LeakyReLU² in both directions."""
    found = loss_kernels("bf16") | loss_kernels("fp32")
    for slope in (0.0, 0.5):
        for backward in (False, True):
            found[f"mlp {'backward' if backward else 'forward'} {slope}"] = mlp_kernel(slope, backward=backward)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
