"""What the host does beside operations: calls of `torch.cuda`, switches of torch, and memory that a copy still reads.

`Host` notes the first two within its block. `Flights` knows the pinned memory from which a copy to the device is on its
way: until the host waits for the device, nothing may write there.
"""

from __future__ import annotations

import contextlib
import gc
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from tests.fake_cuda.tensors import memory

# None of them belongs into a step: they wait, free what is needed again at once, or change the process.
CALLS = (
    "empty_cache",
    "ipc_collect",
    "set_device",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "memory_allocated",
    "max_memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "mem_get_info",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
    "get_device_properties",
)
FLAGS: dict[str, Callable[[], Any]] = {
    "flash attention": torch.backends.cuda.flash_sdp_enabled,
    "memory-efficient attention": torch.backends.cuda.mem_efficient_sdp_enabled,
    "attention by plain operations": torch.backends.cuda.math_sdp_enabled,
    "attention by cuDNN": torch.backends.cuda.cudnn_sdp_enabled,
    "TF32 in products": lambda: torch.backends.cuda.matmul.allow_tf32,
    "TF32 in cuDNN": lambda: torch.backends.cudnn.allow_tf32,
    "reduced sums in bf16": lambda: torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
    "precision of products": torch.get_float32_matmul_precision,
    "deterministic operations": torch.are_deterministic_algorithms_enabled,
    "cuDNN's trials": lambda: torch.backends.cudnn.benchmark,
    "the default dtype": torch.get_default_dtype,
    "gradients": torch.is_grad_enabled,
    "anomaly detection": torch.is_anomaly_enabled,
}


def flags() -> dict[str, Any]:
    """Return the process's switches by name."""
    return {name: read() for name, read in FLAGS.items()}


@contextlib.contextmanager
def watched_host(line: Callable[[], str], note: Callable[[str], None]) -> Iterator[None]:
    """Note each of CALLS within the block, with the `line` that made it, and each switch that the block changes."""

    def noting(name: str) -> Callable[..., int]:
        def call(*_: Any, **__: Any) -> int:
            note(f"{name} is called in {line()}")
            return 0

        return call

    plain = {name: getattr(torch.cuda, name) for name in CALLS}
    collect, before = gc.collect, flags()
    for name in CALLS:
        setattr(torch.cuda, name, noting(name))
    gc.collect = noting("gc.collect")
    try:
        yield
    finally:
        for name, function in plain.items():
            setattr(torch.cuda, name, function)
        gc.collect = collect
        for name, value in flags().items():
            if value != before[name]:
                note(f"{name}: {before[name]} before the block, {value} behind it")


class Flights:
    """Pinned memory from which copies to the device are on their way, with what it held when they began."""

    def __init__(self, note: Callable[[str], None]):
        self.note = note
        self.sources: dict[int, tuple[Tensor, int, str]] = {}
        self.comings: dict[int, str] = {}  # memory of the host that a copy from the device still writes → its line

    def begin(self, source: Tensor, line: str) -> None:
        """Note a copy that does not wait."""
        self.check()
        self.sources[memory(source)] = source, checksum(source), line

    def written(self, tensor: Tensor, name: str) -> None:
        """Note that an operation writes a tensor on the CPU."""
        flight = self.sources.get(memory(tensor))
        if flight:
            self.note(f"{name} writes what the copy of {flight[2]} may still read")

    def arriving(self, tensor: Tensor, line: str) -> None:
        """Note a copy to the host that does not wait."""
        self.comings[memory(tensor)] = line

    def used(self, tensor: Tensor, name: str) -> None:
        """Note that an operation uses a tensor of the host."""
        if tensor.device.type == "cpu" and (line := self.comings.get(memory(tensor))):
            self.note(f"{name} uses what the copy of {line} may not have written yet")

    def landed(self) -> None:
        """Forget the copies: the host has waited for the device."""
        self.check()
        self.sources.clear()
        self.comings.clear()

    def check(self) -> None:
        """Note memory that holds something else than when its copy began, whoever wrote it."""
        for source, held, line in self.sources.values():
            if checksum(source) != held:
                self.note(f"memory changes while the copy of {line} may still read it")


def checksum(tensor: Tensor) -> int:
    """Return a sum of the bytes of a tensor; 0 of one without numbers."""
    if isinstance(tensor, FakeTensor):
        return 0
    with _disable_current_modes():
        return zlib.crc32(tensor.detach().contiguous().numpy().tobytes())
