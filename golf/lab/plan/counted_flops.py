"""Operations and memory of a model with techniques from outside golf: torch counts them in a pass without numbers.

Golf's own modules follow the formulas of `flops`. Of other modules torch counts the products of matrices, and keeps
what their backward pass will read. A module that torch cannot run without numbers, or whose work it cannot see, as a
kernel of its own, says it itself by two methods:

    flops_per_token(seq_len) -> float       # forward operations for each token of a row, all that is in the module
    kept_bytes_per_token(seq_len) -> float  # bytes that its backward pass needs; without it none are counted

Such a module is not run. What it returns has to have the shape of its first argument.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import TorchFunctionMode

from golf.idea_folders import ONCE_BUILT_IN
from golf.registry import CHANGES_ORDER, CHANGES_STEP
from golf.settings.config import Config
from golf.training.model.gpt import GPT


class CountedPass(NamedTuple):
    """The cost of a pass for each token of its row."""

    flops: float
    kept_bytes: float  # for the backward pass; 0 without one


def outside(cfg: Config) -> list[str]:
    """Return the names of techniques that may change the operations of the model in ways that no formula knows."""
    # The formulas were made with those that were golf's once. A changed one of them is among `idea_code`.
    return [
        name
        for name, technique in cfg.tech.items()
        if (name in cfg.idea_code or name not in ONCE_BUILT_IN)
        and not type(technique).__module__.startswith("golf.")
        and technique.effect not in (CHANGES_STEP, CHANGES_ORDER)
    ]


def count_pass(model: GPT, seq_len: int, active: tuple[str, ...], *, trains: bool) -> CountedPass:
    """Run `model`, which is on the meta device, on a row of `seq_len` tokens and return its cost.

    With `trains` the backward pass is counted, too. Raises what a module raises that cannot run without numbers.
    """
    # Imported here, because it takes a third of a second.
    from torch.utils.flop_counter import FlopCounterMode

    ids = torch.zeros((1, seq_len), dtype=torch.int64, device="meta")
    counter, unseen, said = FlopCounterMode(display=False), _Unseen(), list[CountedPass]()
    with _silent(model, seq_len, said), counter, unseen:
        if trains:
            kept = _Kept(model)
            with saved_tensors_hooks(kept.add, lambda tensor: tensor):
                loss = model(ids, ids, active)
            loss.backward()
        else:
            with torch.no_grad():
                model.token_losses(ids, ids, active)
    model.zero_grad()
    times = 3 if trains else 1
    flops = (counter.get_total_flops() - times * unseen.flops) / seq_len + times * sum(told.flops for told in said)
    return CountedPass(flops, kept.nbytes / seq_len + sum(told.kept_bytes for told in said) if trains else 0.0)


def unsaid(model: nn.Module) -> list[str]:
    """Return the classes of modules from outside golf and torch that do not say their operations."""
    kinds = {type(m) for m in model.modules() if not hasattr(m, "flops_per_token")}
    return sorted(kind.__name__ for kind in kinds if kind.__module__.split(".")[0] not in ("golf", "torch"))


class _Unseen(TorchFunctionMode):
    """Counts the forward operations of causal attention on tokens that come later, which torch counts, too."""

    flops = 0.0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention and kwargs.get("is_causal"):
            q, _, v = args
            # Two products of T × T for each head, of which half is above the diagonal.
            self.flops += q.shape[:-2].numel() * q.size(-2) ** 2 * (q.size(-1) + v.size(-1))
        return func(*args, **kwargs)


class _Kept:
    """The bytes of tensors that a forward pass keeps, each storage once and parameters not at all."""

    def __init__(self, model: nn.Module):
        # The tensors are held, so that no other storage gets the same address meanwhile.
        self.held: list[Tensor] = [*model.parameters(), *model.buffers()]
        self.seen = {tensor.untyped_storage()._cdata for tensor in self.held}
        self.nbytes = 0

    def add(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in self.seen:
            self.seen.add(storage._cdata)
            self.held.append(tensor)
            self.nbytes += storage.nbytes()
        return tensor


@contextmanager
def _silent(model: nn.Module, seq_len: int, said: list[CountedPass]) -> Iterator[None]:
    """Within the context modules that say their cost return their first argument, and `said` gets it at every call."""

    def stand_in(module: Any) -> Any:
        def forward(x: Tensor, *_: Any, **__: Any) -> Tensor:
            kept = module.kept_bytes_per_token(seq_len) if hasattr(module, "kept_bytes_per_token") else 0.0
            said.append(CountedPass(module.flops_per_token(seq_len), kept))
            return x * 1.0

        return forward

    saying = [module for module in model.modules() if hasattr(module, "flops_per_token")]
    for module in saying:
        module.forward = stand_in(module)
    try:
        yield
    finally:
        for module in saying:
            del module.forward
