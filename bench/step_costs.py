"""The kernels of a training step: what Inductor compiles for an H100 and what runs eagerly, with bytes and FLOPs.

Bytes are those of the elements that a kernel reads and writes, each once: what it reads twice is in the cache.
Attention counts the causal half of its products, and pieces of documents at their longest.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._inductor import config as inductor
from torch._inductor.virtualized import V
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from bench.fake_h100 import Codes, replace
from bench.touched import count, node_bytes, views
from golf.lab.plan.step_model import H100_BYTES, H100_FLOPS

torch_compile = torch.compile
# Products of the backward pass over those of the forward pass: attention computes its scores anew.
ATTENTION_BACKWARD = 2.5
# They run without a kernel, or allocate.
NO_KERNEL = (
    "detach",
    "empty",
    "empty_like",
    "empty_strided",
    "_unsafe_view",
    "set_",
    "lift_fresh",
    "_local_scalar_dense",
)

PRODUCTS = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1}  # name → tensors before the two factors


@dataclass(frozen=True)
class Kernel:
    """A launch, or a foreach operation."""

    phase: str  # forward, backward or optimizer
    kind: str  # triton, product, attention or operation
    name: str  # operations in it
    read: int  # bytes
    written: int
    flops: float = 0.0
    launches: int = 1

    @property
    def ms(self) -> float:
        """Return the milliseconds below which an H100 cannot run it: those of its bytes or of its products."""
        return 1000 * max((self.read + self.written) / H100_BYTES, self.flops / H100_FLOPS)


class Costs(Codes):
    """A backend for `torch.compile` that notes the kernels of every graph whenever it runs, and runs none of them."""

    def __init__(self) -> None:
        super().__init__()
        self.phase = "forward"
        self.kernels: list[Kernel] = []
        self.eager = _Eager(self)

    def _inner(self, graph: Any, inputs: Any, **options: Any) -> Any:
        from torch._inductor.graph import GraphLowering

        found, plain = list[Kernel](), GraphLowering.codegen

        def codegen(lowering: Any) -> Any:
            # Nobody reads the code of the kernels, which are known once they are scheduled.
            lowering.init_wrapper_code()
            lowering._update_scheduler()
            found.extend(_of_nodes(lowering.scheduler.nodes))
            return "", None

        replace(GraphLowering, codegen=codegen)
        try:
            # A graph out of a cache is not lowered, and one without code must not get into a cache.
            with inductor.patch(force_disable_caches=True):
                run = super()._inner(graph, inputs, **options)
        finally:
            replace(GraphLowering, codegen=plain)

        def noting(arguments: list[Any]) -> Any:
            phase = "backward" if options.get("is_backward") else self.phase
            self.kernels += [dataclasses.replace(kernel, phase=phase) for kernel in found]
            return run(arguments)

        replace(noting, _boxed_call=True)
        return noting

    def compile(self, function: Any = None, **options: Any) -> Any:
        """Stand in for `torch.compile`; each shape has a graph of its own, so that its bytes are known."""
        if function is None:
            return functools.partial(self.compile, **options)
        compiled = torch_compile(function, backend=self, dynamic=False, fullgraph=bool(options.get("fullgraph")))
        if isinstance(function, torch.nn.Module):
            return compiled

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            # Dynamo compiles nothing within a mode of somebody else.
            with self.eager.paused():
                return compiled(*args, **kwargs)

        return call

    def update(self, model: torch.nn.Module, step: Callable[[], object]) -> None:
        """Run `step`, which updates `model`, twice, and note the second time's kernels. The first makes its state."""
        grads = {param: param.grad for param in model.parameters()}
        noted = len(self.kernels)
        step()
        del self.kernels[noted:]
        for param, grad in grads.items():
            param.grad = grad
        self.phase = "optimizer"
        with self.eager:
            step()


def _of_nodes(nodes: Iterable[Any]) -> Iterator[Kernel]:
    """Yield the kernels behind the nodes of Inductor's scheduler. Views and scalars have none."""
    for node in nodes:
        read, written = node_bytes(node)
        if not read + written:
            continue
        if type(node.node).__name__.startswith("TMADescriptor"):
            # An address of a tensor, which the kernel behind it reads or writes.
            continue
        origins = sorted({_origin(o) for part in node.get_nodes() if part.node for o in part.node.get_origins()})
        kernel = Kernel("", "triton", ",".join(origins), read, written)
        yield _extern(kernel, node) if node.is_extern() else kernel


def _origin(node: Any) -> str:
    return str(getattr(node.target, "__name__", node.target)).partition(".")[0]


def _extern(kernel: Kernel, node: Any) -> Kernel:
    """Return the kernel of a call that Inductor leaves to a library."""
    name = node.node.python_kernel_name or kernel.name
    shapes = [tuple(map(int, value.get_size())) for value in node.node.inputs if hasattr(value, "get_size")]
    kernel = dataclasses.replace(kernel, kind="operation", name=name.removeprefix("torch.ops."))
    if type(node.node).__name__ == "UserDefinedTritonKernel":
        return _own_kernel(kernel, node.node)
    if "attention" in name or "attn" in name:
        return dataclasses.replace(
            kernel, kind="attention", flops=_attention_flops(name, shapes, node.node.constant_args)
        )
    if "golf.squared_mlp" in name:
        hidden, width = max(shapes[1]), min(shapes[1])
        products = 1 if "gradient" in name else 2
        flops = 2.0 * products * shapes[0][0] * hidden * width
        # The product behind the activation reads what the first one wrote.
        between = 2 * shapes[0][0] * hidden * (products - 1)
        return dataclasses.replace(kernel, kind="product", flops=flops, read=kernel.read + between, launches=products)
    flops = float(node.estimate_flops() or 0)
    return dataclasses.replace(kernel, kind="product" if flops else "operation", flops=flops)


def _own_kernel(kernel: Kernel, call: Any) -> Kernel:
    """Return a script's own kernel in Triton, whose products nobody knows; it reads what it does not write."""
    changed = {buffer.get_name() for buffer in call.mutable_args}
    totals = [0, 0]
    for name, found in views(getattr(given, "tensor", given) for given in call.inputs).items():
        totals[name in changed] += count(found) * V.graph.get_dtype(name).itemsize
    return dataclasses.replace(kernel, kind="own kernel", name="Triton", read=totals[0], written=totals[1])


def _attention_flops(name: str, shapes: list[tuple[int, ...]], args: Any) -> float:
    """Return the products of causal attention on shapes `[B, H, T, D]`, or `[n, H, D]` in pieces."""
    query = shapes["backward" in name]
    if len(query) == 4:
        batch, heads, length, channels = query
        tokens = batch * length
    else:
        tokens, heads, channels = query
        # The longest piece is the first number among the arguments.
        length = next(arg for arg in args if isinstance(arg, int) and not isinstance(arg, bool) and arg > 1)
    forward = 2.0 * tokens * heads * length * channels
    return forward * (ATTENTION_BACKWARD if "backward" in name else 1)


class _Eager(TorchDispatchMode):
    """Notes the operations that run on the device one by one."""

    def __init__(self, costs: Costs):
        super().__init__()
        self.costs, self.on = costs, False

    def __enter__(self) -> Any:
        self.on = True
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        self.on = False
        super().__exit__(*error)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Leave the mode for the block, if it is on."""
        if not self.on:
            yield
            return
        self.__exit__(None, None, None)
        try:
            yield
        finally:
            self.__enter__()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        space, name = func.name().partition(".")[0].split("::")
        given, made = (_on_device((args, kwargs)), _on_device(result))
        if not (func.is_view or space == "prim" or name in NO_KERNEL) and given + made:
            known = {id(tensor) for tensor in given}
            changed = [arg for arg, of in zip(args, func._schema.arguments, strict=False) if _is_changed(of)]
            written = _nbytes([t for t in made if id(t) not in known] + _on_device(changed))
            reading = _nbytes(given) if name not in ("zero_", "fill_", "copy_") else _nbytes(_on_device(args[1:]))
            kind, flops = ("product", _product_flops(name, given)) if name in PRODUCTS else ("operation", 0.0)
            self.costs.kernels.append(Kernel("optimizer", kind, name, reading, written, flops))
        return result


def _product_flops(name: str, given: list[Tensor]) -> float:
    a, b = given[PRODUCTS[name] : PRODUCTS[name] + 2]
    return 2.0 * math.prod(a.shape) * b.size(-1)


def _is_changed(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _on_device(values: Any) -> list[Tensor]:
    return [t for t in tree_leaves(values) if isinstance(t, Tensor) and t.device.type == "cuda"]


def _nbytes(tensors: Iterable[Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)
