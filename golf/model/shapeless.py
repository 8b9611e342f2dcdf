"""A model without memory, techniques included: for whoever needs names and shapes only, or fills in other numbers."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from golf.config import Config
from golf.model.build import build_model
from golf.model.gpt import GPT


class _NoNumbers(TorchFunctionMode):
    """Leaves out what imports for two seconds on the meta device and could fill nothing there anyway."""

    RANDOM = ("normal_", "uniform_", "trunc_normal_")

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in self.RANDOM:
            return args[0] if args else kwargs["tensor"]
        if func is torch.stack and not kwargs:
            return torch.empty(len(args[0]), *args[0][0].shape)
        return func(*args, **(kwargs or {}))


def shapeless_model(cfg: Config) -> GPT:
    """The model of `cfg` on the meta device: names and shapes, no numbers."""
    with torch.device("meta"), _NoNumbers():
        return build_model(cfg)
