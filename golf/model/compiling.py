"""What `launch.compile` means: nothing, every block once, or the whole model as one graph."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from golf.model.gpt import GPT


def compile_for_training(model: GPT, mode: str) -> None:
    """Compile `model(inputs, targets)` in place. Shapes are fixed, and a graph break is an error."""
    if mode == "full":
        model.compile(dynamic=False, fullgraph=True)
    elif mode == "blocks":
        import torch._dynamo  # here, because it takes 1.7 s

        # techniques make blocks differ, and each late switch doubles what a block is compiled for
        torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 16 * len(model.blocks))
        for block in model.blocks:
            block.compile(dynamic=False, fullgraph=True)


def compile_for_scoring(model: GPT, mode: str) -> Callable[..., Tensor]:
    """`model.token_losses`, compiled as `mode` says."""
    if mode == "full":
        return torch.compile(model.token_losses, dynamic=False, fullgraph=True)
    compile_for_training(model, mode)
    return model.token_losses
