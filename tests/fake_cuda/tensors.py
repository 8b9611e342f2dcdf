"""The tensors in what an operation is given or returns, and the memory of one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield the tensors of an argument or a result."""
    if isinstance(value, list | tuple):
        for part in value:
            yield from tensors_in(part)
    elif hasattr(value, "untyped_storage"):
        yield value


def memory(tensor: Tensor) -> int:
    """Return what tells the tensor's memory from that of others."""
    return tensor.untyped_storage()._cdata
