"""Kernels and launches in the code that Inductor writes for an H100, and their machine code."""

from __future__ import annotations

import ast
from typing import Any


def kernels(text: str) -> dict[str, str]:
    """Return the distinct kernels of a graph's code, name → source in Triton."""
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    made = [node for node in calls if ast.unparse(node.func) == "async_compile.triton"]
    return {ast.literal_eval(node.args[0]): ast.literal_eval(node.args[1]) for node in made}


def launches(text: str) -> dict[str, int]:
    """Return how often a run of a graph's code calls kernels in Triton, and others by their name."""
    counts: dict[str, int] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            kind = "triton" if called.startswith("triton_") and called.endswith(".run") else called
            if kind == "triton" or called.startswith(("extern_kernels.", "torch.ops.")):
                counts[kind] = counts.get(kind, 0) + 1
    return counts


def compiled(name: str, source: str) -> Any:
    """Return the first candidate of a kernel's autotuning, compiled for compute capability 9.0."""
    from torch._inductor.async_compile import _load_triton_kernel_from_source

    tuner = _load_triton_kernel_from_source(name, source)
    return tuner._precompile_config(tuner.configs[0]).kernel
