"""One optimizer step: the rank's micro-batches forward and backward, gradients averaged over ranks, the update.

Parallel Muon averages the gradients itself; otherwise DDP does, during the last micro-batch's backward pass.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from golf.settings.config import Config, changes_loss, grad_accum_steps
from golf.training.model.gpt import GPT
from golf.training.optim.groups import Optimizer
from golf.training.ranks import Ranks

NextBatch = Callable[[], tuple[Tensor, Tensor]]


class TrainStep:
    """Callable that trains `model` in place on one global batch."""

    def __init__(self, cfg: Config, model: GPT, optimizer: Optimizer, ranks: Ranks):
        self.cfg, self.model, self.optimizer = cfg, model, optimizer
        self.ranks, self.device = ranks, ranks.device
        self.accumulation = grad_accum_steps(cfg)
        # Logs compare runs by the nats of tokens, whatever else is minimised.
        self.nats_of = (
            (lambda _: model.get_buffer("mean_nats") / self.accumulation) if changes_loss(cfg) else Tensor.detach
        )
        # The parallel form of Muon averages the gradients itself.
        self.parallel = None
        if cfg.optim.muon != "parallel" and ranks.world_size > 1:
            # Every rank computes its buffers itself. DDP would wait for gradients of late rows before their switch.
            self.parallel = DistributedDataParallel(
                model,
                broadcast_buffers=False,
                gradient_as_bucket_view=True,
                find_unused_parameters=model.has_late_rows,
            )

    def __call__(
        self, next_batch: NextBatch, lr_multiplier: float, momentum: float, active: tuple[str, ...] = ()
    ) -> Tensor:
        """Update once on `accumulation` batches of `next_batch` and return this rank's mean nats a token (scalar).

        `active` are the late switches that are on.
        """
        self.optimizer.zero_grad()
        # Summed on the device, because reading a loss would wait for it.
        total = torch.zeros((), device=self.device)
        for micro in range(self.accumulation):
            # Pinned for CUDA alone. On other devices an asynchronous copy may read memory that was overwritten.
            non_blocking = self.device.type == "cuda"
            inputs, targets = (t.to(self.device, non_blocking=non_blocking) for t in next_batch())
            with self._reduce_gradients(on=micro == self.accumulation - 1):
                # Divided before the backward pass, so that the gradients add up to those of the batch's mean.
                loss = (self.parallel or self.model)(inputs, targets, active) / self.accumulation
                loss.backward()
            total += self.nats_of(loss)
        self.optimizer.step(lr_multiplier, momentum)
        return total

    def _reduce_gradients(self, on: bool) -> contextlib.AbstractContextManager:
        """Return the context in which a backward pass averages the gradients over the ranks if `on`."""
        if self.cfg.optim.muon == "parallel" or self.parallel is None or on:
            return contextlib.nullcontext()
        # Earlier micro-batches add up their gradients here, so that one exchange a step is enough.
        return self.parallel.no_sync()
