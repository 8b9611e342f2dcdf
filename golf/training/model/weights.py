"""Files of weights: safetensors for our own, weights-only `.pt` for the field's. No other object is unpickled."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from golf.errors import GolfError


class Weighted(Protocol):
    """A model, some of whose weights may be for training alone."""

    def scored_weights(self) -> dict[str, Tensor]:
        """Return the weights that are scored and exported."""

    def load_state_dict(self, weights: dict[str, Tensor], /, *, strict: bool) -> object:
        """Take the weights over."""


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read the state dict of a `.safetensors` or `.pt` file, on the CPU. Raises `GolfError` for any other file."""
    if not path.is_file():
        raise GolfError(f"The starting weights {path} do not exist: check model.init_from.")
    try:
        if path.suffix == ".safetensors":
            return safetensors.torch.load_file(path)
        weights = torch.load(path, map_location="cpu", weights_only=True)
    # torch.load raises another error for nearly every kind of damage.
    except Exception as error:
        how = "give a .safetensors file, or a .pt file with nothing but a state dict"
        raise GolfError(f"{path} holds no weights that can be read safely: {how}.") from error
    if not isinstance(weights, dict) or not all(isinstance(t, Tensor) for t in weights.values()):
        raise GolfError(f"{path} is not a state dict: save `model.state_dict()` alone.")
    return weights


def load_weights(model: Weighted, path: Path) -> None:
    """Load `path` into `model`. Raises `GolfError` unless all names and shapes of what is scored match."""
    weights, own = read_weights(path), model.scored_weights()
    problems = [f"{name} is missing" for name in own if name not in weights]
    problems += [f"{name} is not in the model" for name in weights if name not in own]
    problems += [
        f"{name} is {tuple(tensor.shape)}, not {tuple(own[name].shape)}"
        for name, tensor in weights.items()
        if name in own and tensor.shape != own[name].shape
    ]
    if problems:
        more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
        what = f"({'; '.join(problems[:3])}{more}): choose the model they were made with"
        raise GolfError(f"The weights in {path} do not fit the model {what}.")
    # What only training needs is in no file of weights.
    model.load_state_dict(weights, strict=False)


def weights_to_bytes(weights: dict[str, Tensor]) -> bytes:
    """Return a state dict as the content of a `.safetensors` file."""
    # safetensors refuses tensors that are not contiguous.
    return safetensors.torch.save({name: t.detach().cpu().contiguous() for name, t in weights.items()})
