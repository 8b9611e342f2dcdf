"""Construction of a model: the baseline, the edits of the selected techniques, compiling, models on the meta device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from golf.settings.config import Config, techniques
from golf.training.model.gpt import GPT


def build_model(cfg: Config) -> GPT:
    """Build the model of `cfg` on the CPU, initialised from `cfg.seed`. The global random state stays as it is."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(cfg.seed)
        model = GPT(cfg.model)
        for technique in techniques(cfg):
            technique.edit_model(model, cfg)
    return model


def compile_for_training(model: GPT, mode: str) -> None:
    """Compile `model(inputs, targets)` in place. Shapes are fixed, and a graph break is an error."""
    if mode == "full":
        model.compile(dynamic=False, fullgraph=True)
    elif mode == "blocks":
        import torch._dynamo  # imported here, because it takes 1.7 s

        # techniques make blocks differ, and each late switch doubles what a block is compiled for
        torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 16 * len(model.blocks))
        for block in model.blocks:
            block.compile(dynamic=False, fullgraph=True)


def compile_for_scoring(model: GPT, mode: str) -> Callable[..., Tensor]:
    """Return `model.token_losses`, compiled as `mode` says."""
    if mode == "full":
        return torch.compile(model.token_losses, dynamic=False, fullgraph=True)
    compile_for_training(model, mode)
    return model.token_losses


class _NoNumbers(TorchFunctionMode):
    """Skip initialisers on the meta device: they have nothing to fill there, and importing them takes two seconds."""

    RANDOM = ("normal_", "uniform_", "trunc_normal_")

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in self.RANDOM:
            return args[0] if args else kwargs["tensor"]
        if func is torch.stack and not kwargs:
            return torch.empty(len(args[0]), *args[0][0].shape)
        return func(*args, **(kwargs or {}))


def shapeless_model(cfg: Config) -> GPT:
    """Build the model of `cfg` on the meta device: names and shapes without numbers."""
    with torch.device("meta"), _NoNumbers():
        return build_model(cfg)
