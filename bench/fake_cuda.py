"""A CUDA device without numbers: torch's fake tensors on `cuda`, in a process of their own, without a GPU.

`load_guard` comes before torch is imported.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

GUARD = Path(__file__).parent / "guard.cpp"
WIDEST_HEAD = 256  # channels


def build_guard(folder: Path, torch_folder: Path, source: Path = GUARD) -> Path:
    """Compile the library that tells autograd of the device, and return its path."""
    library = folder / "guard.so"
    paths = [f"-I{torch_folder}/include", f"-L{torch_folder}/lib", f"-Wl,-rpath,{torch_folder}/lib"]
    command = ["g++", "-O0", "-std=c++20", "-shared", "-fPIC", *paths, str(source), "-o", str(library)]
    subprocess.run([*command, "-ltorch_cpu", "-lc10"], check=True, capture_output=True)
    return library


def load_guard(library: str) -> None:
    """Register the device. Torch asks for it once, while it is imported."""
    assert "torch" not in sys.modules
    ctypes.CDLL(library)


def put_guard(library: str) -> None:
    """Put the device's guard in the place of a CUDA build's own, after torch was imported."""
    ctypes.CDLL(library).put_guard()


def require_flash_inputs(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Raise `RuntimeError` as the CUDA code of flash-attn does: for devices, dtypes, layouts and widths it lacks."""
    import torch

    for name, t in (("q", q), ("k", k), ("v", v)):
        if t.device.type != "cuda":
            raise RuntimeError(f"{name} must be on CUDA")
        if t.dtype not in (torch.float16, torch.bfloat16):
            raise RuntimeError("FlashAttention only support fp16 and bf16 data type")
        if t.stride(-1) != 1:
            raise RuntimeError("Input tensor must have contiguous last dimension")
    if q.size(-1) % 8 or q.size(-1) > WIDEST_HEAD:
        raise RuntimeError("head_size should be a multiple of 8 and at most 256")
    if k.shape != v.shape or q.size(0) != k.size(0) or q.size(2) % k.size(2):
        raise RuntimeError("Number of heads in key/value must divide number of heads in query")


def pretend() -> None:
    """Replace what needs a driver: settings of the device, pinned memory, moves of modules, the kernel of attention."""
    import torch
    import torch.nn.functional as functional
    from torch import Tensor, nn

    torch.cuda.set_device = torch.cuda.synchronize = lambda *_: None
    torch.cuda.get_device_capability = lambda *_: (9, 0)

    def pin_memory(tensor: Tensor, *_: Any) -> Tensor:
        tensor.is_fake_pinned = True  # type: ignore[attr-defined]
        return tensor

    def apply(module: nn.Module, fn: Any, recurse: bool = True) -> nn.Module:
        for child in module.children():
            apply(child, fn)
        for name, param in module._parameters.items():
            if param is not None:
                module._parameters[name] = nn.Parameter(fn(param.detach()), param.requires_grad)
        for name, buffer in module._buffers.items():
            module._buffers[name] = None if buffer is None else fn(buffer)
        return module

    plain = functional.scaled_dot_product_attention

    def attention(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        if q.device.type != "cuda":
            return plain(q, k, v, **options)
        require_flash_inputs(*(t.transpose(1, 2) for t in (q, k, v)))
        assert options["is_causal"]
        return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True)[0]

    Tensor.pin_memory = pin_memory  # type: ignore[assignment]
    nn.Module._apply = apply  # type: ignore[method-assign]
    functional.scaled_dot_product_attention = attention  # type: ignore[assignment]
