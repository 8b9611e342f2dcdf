"""Tensors with numbers that say they are on a CUDA device: what has to mix or leave devices fails as it would there.

Code whose way depends on numbers, such as quantization, cannot run on fake tensors. Here the numbers are on the CPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

CUDA, CPU = torch.device("cuda", 0), torch.device("cpu")
MOVES = ("aten::_to_copy", "aten::copy_", "aten::_foreach_copy_")
# Indices and single numbers may be on the CPU.
INDEXED = ("aten::index", "aten::_index_put", "aten::_unsafe_index")


class OnDevice(Tensor):
    """A tensor on the device, with its `numbers` on the CPU."""

    numbers: Tensor

    @staticmethod
    def __new__(cls, numbers: Tensor) -> OnDevice:
        made: OnDevice = Tensor._make_wrapper_subclass(
            cls,
            numbers.size(),
            strides=numbers.stride(),
            storage_offset=numbers.storage_offset(),
            dtype=numbers.dtype,
            device=CUDA,
        )
        made.numbers = numbers
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        return _run(func, args, kwargs or {})

    def tolist(self) -> Any:
        return self.numbers.tolist()


class _Device(TorchDispatchMode):
    """Makes what is made on CUDA, or moved there."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    name, given = func.name(), [t for t in tree_flatten((args, kwargs))[0] if isinstance(t, Tensor)]
    on_device = [t for t in given if isinstance(t, OnDevice)]
    is_move = name.startswith(MOVES)
    others = [t for t in given if not isinstance(t, OnDevice) and t.ndim > 0]
    if on_device and others and not is_move and not name.startswith(INDEXED):
        raise RuntimeError(f"Expected all tensors to be on the same device: {name}")
    if name.startswith("aten::_local_scalar_dense"):
        return on_device[0].numbers.item() if on_device else func(*args)
    wanted = kwargs.get("device")
    is_made_there = torch.device(wanted).type == "cuda" if wanted is not None else bool(on_device)
    if name.startswith("aten::copy_"):
        is_made_there = isinstance(args[0], OnDevice)
    own = {id(t.numbers): t for t in on_device}
    unwrapped = tree_map(lambda x: x.numbers if isinstance(x, OnDevice) else x, (args, kwargs))
    options = {**unwrapped[1], **({"device": CPU} if wanted is not None else {})}
    # An asynchronous or pinned copy is one of the CPU here.
    options = {key: value for key, value in options.items() if key != "pin_memory"}
    result = func(*unwrapped[0], **options)

    def wrapped(x: Any) -> Any:
        if id(x) in own:
            return own[id(x)]
        return OnDevice(x) if isinstance(x, Tensor) and is_made_there else x

    return tree_map(wrapped, result)


@contextmanager
def device_with_numbers() -> Iterator[None]:
    """Take `torch.device("cuda")` for a device with numbers within the block."""
    with torch.no_grad(), _Device():
        yield
