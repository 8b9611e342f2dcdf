"""Any `torch.optim.Optimizer` by its dotted name, for the groups of parameters that are named."""

from __future__ import annotations

import ast
import importlib
import inspect
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from golf.errors import GolfError
from golf.run.progress import Progress
from golf.settings.config import Config
from golf.settings.fields import among
from golf.training.model.gpt import GPT
from golf.training.optim.rules import MakeOptimizer
from golf.training.techniques.base import CHANGES_STEP, Averager, Technique, technique

GROUPS = ("embed", "head", "scalar", "matrix")
# Parameter → its optimizer, of those that score other weights than they train.
AVERAGING = WeakTensorKeyDictionary()


class TorchOptimizer:
    """One group of parameters under an optimizer of torch's interface."""

    def __init__(
        self, params: list[nn.Parameter], lr: float, weight_decay: float, *, kind: type, given: dict[str, Any]
    ):
        self.params, self.lr, self.weight_decay = list(params), lr, weight_decay
        # A model of one layer has skip weights without a row, by whose number some classes divide.
        self._held = [p for p in self.params if p.numel()]
        if "weight_decay" in inspect.signature(kind).parameters:
            given = {"weight_decay": weight_decay, **given}
            self.weight_decay = given["weight_decay"]
        self._make = partial(kind, lr=lr, **given)
        try:
            self.inner: torch.optim.Optimizer = self._make(self._held)
        except (TypeError, ValueError) as error:
            raise GolfError(f"{kind.__name__} refuses tech.torch_optimizer.arguments ({error}).") from error

        # Made in this order and not in that of the first gradients, so that a resumed run has the same.
        for param in self._held:
            self.inner.state[param] = dict(self.inner.state.get(param, {}))
        # Schedule-free optimizers put their averages in the parameters' place by `eval`, and take them away by `train`.
        if hasattr(self.inner, "eval") and hasattr(self.inner, "train"):
            self.inner.train()
            AVERAGING.update(dict.fromkeys(self._held, self.inner))

    def step(self, lr_multiplier: float) -> None:
        """Apply one update at `lr · lr_multiplier`. Parameters without a gradient stay as they are."""
        for group in self.inner.param_groups:
            group["lr"] = self.lr * lr_multiplier
            if "weight_decay" in group:
                group["weight_decay"] = self.weight_decay
        self.inner.step()

    def state_dict(self) -> Mapping[str, Tensor]:
        """Return the state of each parameter and the settings, in which some optimizers count steps, as bytes."""
        settings = {key: value for key, value in self.inner.param_groups[0].items() if key != "params"}
        content = io.BytesIO()
        torch.save({"state": [dict(self.inner.state.get(p, {})) for p in self._held], "settings": settings}, content)
        return {"saved": torch.from_numpy(np.frombuffer(content.getvalue(), dtype=np.uint8).copy())}

    def load_state_dict(self, state: Mapping[str, Tensor | Sequence[Tensor]]) -> None:
        """Restore it in the dtypes that it had, which torch's own method would replace by the parameters'."""
        saved = state["saved"]
        assert isinstance(saved, Tensor)
        content = io.BytesIO(saved.cpu().numpy().tobytes())
        found = torch.load(content, weights_only=True, map_location=self.params[0].device)
        self.inner.state.clear()
        for param, held in zip(self._held, found["state"], strict=True):
            self.inner.state[param] = held
        self.inner.param_groups[0].update(found["settings"])

    def state_bytes(self) -> int:
        """Return the bytes of the state after a step, which is taken without any data."""
        shapes = [nn.Parameter(torch.empty_like(p, device="meta")) for p in self._held]
        optimizer = self._make(shapes)
        for param in shapes:
            param.grad = torch.empty_like(param)
        optimizer.step()
        held = [t for state in optimizer.state.values() for t in state.values() if isinstance(t, Tensor)]
        return sum(t.numel() * t.element_size() for t in held)


class OwnAverage:
    """The weights that optimizers with `eval` and `train` score."""

    def __init__(self, model: GPT):
        self.updates = 0
        self.named = {name: param for name, param in model.named_parameters() if param in AVERAGING}

    def update(self, progress: Progress) -> None:
        """Count a step."""
        self.updates += 1

    def weights(self) -> dict[str, Tensor]:
        """Return the parameters as they are after `eval`, and go on with those that are trained."""
        optimizers = list(dict.fromkeys(AVERAGING[param] for param in self.named.values()))
        # Put back as they were, because a way there and back in bf16 rounds.
        trained = [param.detach().clone() for param in self.named.values()]
        for optimizer in optimizers:
            optimizer.eval()
        scored = {name: param.detach().clone() for name, param in self.named.items()}
        for optimizer in optimizers:
            optimizer.train()
        with torch.no_grad():
            for param, before in zip(self.named.values(), trained, strict=True):
                param.copy_(before)
        return scored

    def state_dict(self) -> dict[str, Tensor]:
        """Return the count; the averages are in the optimizers' state."""
        return {"updates": torch.tensor(self.updates)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore the count."""
        self.updates = int(state["updates"])


def class_of(name: str) -> type:
    """Return the optimizer with the dotted name. Raises `GolfError` if there is none."""
    module, _, last = name.rpartition(".")
    try:
        kind = getattr(importlib.import_module(module), last)
    except (ImportError, ValueError, AttributeError) as error:
        raise GolfError(f"There is no optimizer {name} here ({error}): install its package.") from error
    if not (isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)):
        raise GolfError(f"{name} is no torch.optim.Optimizer.")
    if inspect.signature(kind.step).parameters["closure"].default is inspect.Parameter.empty:
        raise GolfError(f"{name} evaluates the loss several times a step, which a training step here does not offer.")
    return kind


def arguments_of(text: str) -> dict[str, Any]:
    """Return the keyword arguments written in `text`. Raises `GolfError` for anything but literals."""
    try:
        call = ast.parse(f"f({text})", mode="eval").body
        assert isinstance(call, ast.Call) and not call.args
        return {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords if keyword.arg}
    except (SyntaxError, ValueError, AssertionError) as error:
        raise GolfError(f"tech.torch_optimizer.arguments={text} is no list like betas=(0.9,0.95).") from error


@technique("torch_optimizer")
@dataclass
class TorchOptimizers(Technique):
    """Rates and decays are those of the groups: optim.matrix_lr, optim.embed_lr, optim.scalar_lr and so on."""

    source = "torch.optim; packages such as pytorch-optimizer have the same interface"
    effect = CHANGES_STEP

    optimizer: str = "torch.optim.NAdam"  # dotted name of the class
    # groups of parameters that it trains; what is left out stays with Golf's own
    replaces: list[str] = field(default_factory=lambda: ["scalar"], metadata=among(*GROUPS))
    arguments: str = ""  # keyword arguments beside the rate, as in betas=(0.9,0.95)

    def check(self, cfg: Config) -> None:
        """Raise `GolfError` for what cannot be made."""
        if not self.replaces:
            raise GolfError(f"tech.torch_optimizer.replaces is empty: name some of {', '.join(GROUPS)}.")
        self.group_optimizers(cfg)

    def group_optimizers(self, cfg: Config) -> dict[str, MakeOptimizer]:
        """Return the optimizer for each of the groups."""
        maker = partial(TorchOptimizer, kind=class_of(self.optimizer), given=arguments_of(self.arguments))
        return dict.fromkeys(self.replaces, maker)

    def averager(self, model: GPT) -> Averager | None:
        """Return the averages of optimizers that score other weights than they train, None for other optimizers."""
        average = OwnAverage(model)
        return average if average.named else None
