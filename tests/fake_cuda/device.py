"""A recorder of what a step asks of the fake CUDA device of `bench/fake_cuda.py`: everything within its block."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from bench.fake_cuda import require_flash_inputs
from tests.fake_cuda.tensors import tensors_in

PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "_scaled_dot_product_flash_attention")
# Operations whose results are activations. Inside a norm, which is one kernel on a GPU, float32 is meant.
ACTIVATIONS = ("mm", "bmm", "addmm", "addcmul", "embedding", "_scaled_dot_product_flash_attention", "cat", "relu")


class Recorder:
    """Host waits, copies from pageable memory and float32 activations within the block, by the line that caused them.

    `host` has what else the host did that no step may do, see host.py.

    `activation` is the number of elements from which on a float32 tensor counts as an activation.
    """

    def __init__(self, activation: int, watch: Any = None):
        self.activation, self.watch = activation, watch
        self.waits: list[str] = []
        self.pageable: list[str] = []
        self.wide: list[str] = []
        self.host: list[str] = []
        self.live_ops = 0

    def __enter__(self) -> Recorder:
        import torch
        from torch.utils._python_dispatch import TorchDispatchMode

        from tests.fake_cuda.constants import Constants
        from tests.fake_cuda.host import Flights, watched_host

        recorder = self
        # Scores have many lengths of rows, whose tables nobody keeps.
        self._constants = Constants(lambda what: self.host.append(f"{what} in {_line()}") if _is_in_step() else None)
        self._flights = Flights(self.host.append)
        self._host = watched_host(_line, self.host.append)

        class Mode(TorchDispatchMode):
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                name = func.name()
                if name.startswith("aten::_local_scalar_dense"):
                    if args[0].device.type == "cuda":
                        recorder.wait()
                    return 1.0
                require_one_dtype(name, args)
                given = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | (kwargs or {})
                if name == "torch_attn::_varlen_attn":
                    require_table(given)
                recorder.see_memory(func, given)
                result = func(*args, **(kwargs or {}))
                recorder.see(name, args, given, result)
                if recorder.watch is not None:
                    recorder.watch.operation(func, args, kwargs or {}, result)
                return result

        self._mode = Mode()
        self._torch = torch
        self._mode.__enter__()
        torch.cuda.synchronize = lambda *_: recorder.wait()
        self._host.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._host.__exit__(*error)
        self._flights.check()
        self._mode.__exit__(*error)

    def wait(self) -> None:
        """Note that the host waits for the device."""
        self.waits.append(_line())
        self._flights.landed()

    def see_memory(self, func: Any, given: dict[str, Any]) -> None:
        """Note memory that the operation writes while a copy may still read it, and reads before a copy has come."""
        for told in func._schema.arguments:
            for tensor in tensors_in(given.get(told.name)):
                self._flights.used(tensor, func.name())
                if told.alias_info and told.alias_info.is_write:
                    self._flights.written(tensor, func.name())

    def see(self, name: str, args: Any, given: dict[str, Any], result: Any) -> None:
        """Note what the operation `name` did."""
        torch = self._torch
        sources = [a for a in args if isinstance(a, torch.Tensor)]
        self._constants.see(name, list(tensors_in(list(given.values()))), list(tensors_in(result)))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if not isinstance(tensor, torch.Tensor):
                continue
            if tensor.device.type == "cuda":
                self.live_ops += 1
                if name.startswith("aten::add_.") and (line := _line()).startswith("tally.py"):
                    self.host += [f"a score is summed in {tensor.dtype} in {line}"] * (tensor.dtype != torch.float64)
            copies = name.startswith(("aten::_to_copy", "aten::copy_"))
            from_host = copies and sources[-1].device.type == "cpu"
            if from_host and tensor.device.type == "cuda" and not getattr(sources[-1], "is_fake_pinned", False):
                self.pageable.append(_line())
            elif from_host and tensor.device.type == "cuda":
                self._flights.begin(sources[-1], _line())
            if copies and not from_host and tensor.device.type == "cpu":
                if given.get("non_blocking"):
                    self._flights.arriving(tensor, _line())
                else:
                    self.wait()
            large = tensor.numel() >= self.activation
            if tensor.dtype == torch.float32 and large and name[6:].partition(".")[0] in ACTIVATIONS:
                self.wide.append(f"{name} {list(tensor.shape)} in {_line()}")


def require_one_dtype(name: str, args: Any) -> None:
    """Raise `RuntimeError` for a product of several dtypes, as a GPU does; fake tensors multiply them."""
    if name[6:].partition(".")[0] in PRODUCTS:
        dtypes = {str(a.dtype) for a in args if hasattr(a, "dtype") and a.is_floating_point()}
        if len(dtypes) > 1:
            raise RuntimeError(f"{name} of {' and '.join(sorted(dtypes))}")


def require_table(given: dict[str, Any]) -> None:
    """Raise `RuntimeError` for inputs that torch's attention by pieces does not take on a GPU, or if it looks ahead."""
    q, k, v, starts = (given[name] for name in ("query", "key", "value", "cu_seq_q"))
    require_flash_inputs(*(t[None] for t in (q, k, v)))
    if str(starts.dtype) != "torch.int32" or not starts.is_contiguous() or starts.device != q.device:
        raise RuntimeError("cu_seqlens must have dtype int32, be contiguous and on the device of the query")
    if not given.get("is_causal") and (given.get("window_size") or [-1, -1])[1] != 0:
        raise RuntimeError("a token sees later ones of its piece")


def _is_in_step() -> bool:
    """Tell whether a training step is running."""
    frame = sys._getframe(1)
    while frame.f_back is not None and not frame.f_code.co_filename.endswith(f"loop{os.sep}steps.py"):
        frame = frame.f_back
    return frame.f_back is not None


def _line() -> str:
    """Return file and line of golf's code that called the operation."""
    frame = sys._getframe(1)
    while frame.f_back is not None and f"{os.sep}golf{os.sep}training" not in frame.f_code.co_filename:
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
