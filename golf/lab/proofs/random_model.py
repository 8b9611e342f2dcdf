"""Models with random weights that depend on nothing but names, so that two of them differ only by what is proved."""

from __future__ import annotations

import dataclasses
import zlib

import numpy as np
import torch
from torch import Tensor, nn

from golf.run.progress import Progress
from golf.settings.config import Config, techniques
from golf.training.model.build import shapeless_model
from golf.training.model.gpt import GPT

WHILE_SWITCHED = Progress(step=1, fraction=1.0, lr_multiplier=0.0)


def noise(name: str, shape: torch.Size) -> Tensor:
    """Return numbers of mean 0 and variance 1 for the tensor `name`, float64.

    The number at an index depends on the name and the index alone: a smaller tensor is the corner of a larger one.
    """
    generator = np.random.default_rng(zlib.crc32(name.encode()))
    seeds = [np.random.default_rng(generator.integers(1 << 32, dtype=np.int64)) for _ in range(max(len(shape), 1))]
    # The sine of a product of two large random numbers is as good as random, and needs one pass over the matrix.
    phase = torch.ones((), dtype=torch.float64)
    for seed, size in zip(seeds, shape or (1,), strict=True):
        phase = phase[..., None] * torch.from_numpy(seed.uniform(1.0, 1000.0, size))
    return phase.sin().mul_(2**0.5).view(shape)


class RandomWeights:
    """Weights that the models of one configuration and its variations share: each tensor is drawn once."""

    def __init__(self, model_dim: int, progress: Progress = WHILE_SWITCHED):
        self.model_dim, self.progress = model_dim, progress
        self._drawn: dict[tuple[str, torch.Size], Tensor] = {}

    def drawn(self, name: str, shape: torch.Size) -> Tensor:
        """Return a random float64 tensor that depends on its name: vectors around 1, matrices scaled by 1/√d."""
        if (name, shape) not in self._drawn:
            drawn = noise(name, shape)
            # Vectors are about 1 and never near 0, because a gain of 0 would hide what is behind it.
            drawn = drawn * self.model_dim**-0.5 if drawn.ndim > 1 else 1.0 + drawn / 2
            self._drawn[name, shape] = drawn
        return self._drawn[name, shape]

    def model(self, cfg: Config) -> GPT:
        """Return the model of `cfg` in float64 with these weights. Its parameters are shared: do not change them.

        Sets the CPU's random state, which proofs restore.
        """
        # Kernels for GPUs refuse tensors on a CPU.
        cfg = dataclasses.replace(cfg, model=dataclasses.replace(cfg.model, attention="sdpa"))
        # Built without storage: initialising large matrices is slow, and the weights are replaced anyway.
        model = shapeless_model(cfg).double()
        for path, module in model.named_modules():
            _fill(module, path + "." if path else "", self)
        for technique in techniques(cfg):
            technique.before_step(model, self.progress)
        # Models that are compared draw equal numbers in their passes, where dropout draws some.
        # `torch.manual_seed` would seed the GPUs, too, whose random state a run on them has to keep.
        torch.default_generator.manual_seed(0)
        return model


def _fill(module: nn.Module, prefix: str, weights: RandomWeights) -> None:
    for name, param in list(module.named_parameters(recurse=False)):
        setattr(module, name, nn.Parameter(weights.drawn(prefix + name, param.shape)))
    for name, buffer in list(module.named_buffers(recurse=False)):
        # Techniques write into buffers, so these are copies.
        setattr(module, name, weights.drawn(prefix + name, buffer.shape).to(buffer.dtype, copy=True))
