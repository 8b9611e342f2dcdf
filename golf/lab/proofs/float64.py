"""Float64 throughout a block of code, for proofs that compare numbers to the last bit."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

NARROW = frozenset((torch.float32, torch.bfloat16, torch.float16))


class InFloat64(TorchFunctionMode):
    """Compute in float64 whatever code asks for: casts to narrower floats, which would round a small leak away."""

    CASTS = (Tensor.float, Tensor.half, Tensor.bfloat16)

    def __enter__(self) -> InFloat64:
        self.default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        return super().__enter__()

    def __exit__(self, *raised: Any) -> None:
        torch.set_default_dtype(self.default)
        super().__exit__(*raised)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in self.CASTS:
            return args[0].double()
        # Views of bits keep the dtype that they name.
        if func is not Tensor.view:
            args = tuple(map(_widened, args))
        return func(*args, **{key: _widened(value) for key, value in (kwargs or {}).items()})


def _widened(value: Any) -> Any:
    return torch.float64 if type(value) is torch.dtype and value in NARROW else value
