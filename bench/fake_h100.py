"""Inductor's code for an H100 without one: the text of each graph, and its kernels compiled to machine code.

`pretend_h100` comes before anything compiles, in a process that has loaded the fake CUDA device of
`bench/fake_cuda.py`.
"""

from __future__ import annotations

import copy
import types
from typing import Any

H100 = {
    "name": "NVIDIA H100 80GB HBM3",
    "major": 9,
    "minor": 0,
    "multi_processor_count": 132,
    "regs_per_multiprocessor": 65536,
    "max_threads_per_multi_processor": 2048,
    "max_threads_per_block": 1024,
    "warp_size": 32,
    "total_memory": 80 * 2**30,
    "shared_memory_per_block": 49152,
    "shared_memory_per_block_optin": 232448,
    "shared_memory_per_multiprocessor": 233472,
    "L2_cache_size": 50 * 2**20,
    "gcnArchName": "",
}


def replace(owner: Any, **values: Any) -> None:
    """Set attributes of a module or class of torch, of which type checkers know that they are not meant to be set."""
    for name, value in values.items():
        setattr(owner, name, value)


def pretend_h100() -> None:
    """Replace what Inductor and Triton ask of a driver."""
    import torch
    import triton
    from torch._dynamo.device_interface import CudaInterface
    from torch._inductor import config
    from torch._inductor.fx_passes import fuse_attention
    from torch._inductor.runtime import triton_helpers
    from torch._subclasses import fake_tensor
    from triton.backends.compiler import GPUTarget

    properties = types.SimpleNamespace(**H100)
    answers: dict[str, Any] = {
        "current_device": lambda: 0,
        "device_count": lambda: 1,
        "get_device_properties": lambda *_: properties,
    }
    replace(torch.cuda, **answers, get_device_capability=lambda *_: (9, 0))
    replace(torch.cuda, is_available=lambda: True, is_initialized=lambda: True)
    replace(torch.cuda, get_rng_state=torch.get_rng_state, set_rng_state=lambda *_: None)
    # Two functions, because Dynamo lists both.
    replace(torch.cuda, _exchange_device=lambda *_: 0, _maybe_exchange_device=lambda *_: 0)
    for interface in (CudaInterface, CudaInterface.Worker):
        replace(interface, **{name: staticmethod(answer) for name, answer in answers.items()})
    driver = types.SimpleNamespace(
        get_current_target=lambda: GPUTarget("cuda", 90, 32),
        get_current_device=lambda: 0,
        get_active_torch_device=lambda: torch.device("cuda", 0),
    )
    triton.runtime.driver.set_active(driver)
    replace(triton_helpers, set_driver_to_gpu=lambda: None)
    # Otherwise fake tensors would copy constants to the device that has just been announced.
    replace(fake_tensor.FakeTensorMode, avoid_device_init=property(lambda _: True))
    # A CUDA build would make a real tensor there.
    replace(fake_tensor, init_gpu_context=lambda _: None)
    # It would run attention on the device, and so would the folding of constants.
    replace(fuse_attention, _sfdp_init=lambda *_: None)
    config.joint_graph_constant_folding = False
    # It would take times of products on the device, to tell whether odd sizes are padded.
    config.shape_padding = False
    config.force_disable_caches = True
    config.compile_threads = 1
    # Otherwise machine code would be loaded as soon as it is made. Torch 2.11 has the other name.
    for name in ("use_static_triton_launcher", "use_static_cuda_launcher"):
        if hasattr(config, name):
            setattr(config, name, False)


class Codes:
    """A backend for `torch.compile` that keeps the text of every graph, and runs the graph on fake tensors."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, graph: Any, inputs: Any) -> Any:
        from torch._inductor.compile_fx import compile_fx

        return compile_fx(graph, inputs, inner_compile=self._inner)

    def _inner(self, graph: Any, inputs: Any, **options: Any) -> Any:
        from torch._inductor.compile_fx import compile_fx_inner
        from torch._inductor.graph import GraphLowering

        def keep(lowering: Any) -> Any:
            code, _ = lowering.codegen()
            self.texts.append(getattr(code, "value", code))
            return types.SimpleNamespace(call=lambda _: None, runner=None, __file__="", key="", value="")

        runnable, plain = copy.deepcopy(graph), GraphLowering.compile_to_module
        replace(GraphLowering, compile_to_module=keep)
        try:
            compile_fx_inner(graph, inputs, **options)
        finally:
            replace(GraphLowering, compile_to_module=plain)

        def run(arguments: list[Any]) -> Any:
            results = runnable(*arguments)
            arguments.clear()
            return results

        # It empties the list of its arguments, which says so to its caller.
        replace(run, _boxed_call=True)
        return run
