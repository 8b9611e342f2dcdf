"""Tuning after rounding: what an artifact holds in floats is trained on training text, with the codes fixed.

These are the scales of rows, groups and low-rank factors, and all tensors that are stored as floats. The loss is the
divergence from the trained model, or the run's own. Source: WaterSIC-FT, arXiv 2603.04956.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from golf.artifact.quant.fitting import fitting_scales
from golf.artifact.quant.formats import LARGEST_SCALE, SMALLEST_SCALE, CodedTensor, CodedTensors, Tensors, decode
from golf.artifact.quant.policy import dequantize_as
from golf.settings.config import Config, QuantConfig, grad_accum_steps, micro_batch_tokens, scored_config, trains_apart
from golf.training.data.batches import open_loader
from golf.training.data.dataset import Dataset, open_dataset
from golf.training.loop.steps import NextBatch
from golf.training.model.build import build_scored_model
from golf.training.model.gpt import GPT
from golf.training.ranks import Ranks

SCALE_RATE, FLOAT_RATE = 2e-3, 6e-4  # learning rates of scales, relative to them, and of other floats
HELD_OUT = 4  # steps' worth of training text that is held out
CHECK_EVERY = 10  # steps
PATIENCE = 3  # checks without a better loss on held-out text after which the tuning ends

Rows = list[tuple[Tensor, Tensor]]  # ids and targets [B, T] of a step, one pair for each micro-batch of this rank


@dataclass(frozen=True)
class Tuning:
    """Outcome of a tuning: the tensors of least loss on held-out text, which may be those before it."""

    coded: CodedTensors
    steps: int  # steps that were made
    before: float  # loss on held-out text in nats per token
    after: float
    seconds: float


def tune(coded: CodedTensors, state_dict: Tensors, cfg: Config, dataset: Dataset | None = None) -> CodedTensors:
    """Return `coded`, the stored form of `state_dict`, with its floats tuned as `cfg.quant.tune` says.

    Works in this process on `cfg.launch.device`, without a time limit, on the training text behind that of
    `golf.calibrate`.
    """
    ranks, after = Ranks(device=torch.device(cfg.launch.device)), cfg.quant.calibration.tokens / micro_batch_tokens(cfg)
    with open_loader(cfg, dataset or open_dataset(cfg), ranks, after=math.ceil(after)) as loader:
        return tune_floats(cfg, coded, state_dict, ranks, loader.next_batch).coded


def tune_floats(
    cfg: Config,
    coded: CodedTensors,
    state_dict: Tensors,
    ranks: Ranks,
    next_batch: NextBatch,
    *,
    seconds_left: float = math.inf,
    fits: Callable[[CodedTensors], bool] | None = None,
) -> Tuning:
    """Take up to `quant.tune.steps` Adam steps in the arithmetic of scoring, and keep the best on held-out text.

    All ranks give the same `coded` and `state_dict` and get the same result. A step that would not end within
    `seconds_left` is not begun. Scales are put back until the result `fits`, if that is given.
    """
    start, losses = time.perf_counter(), Losses(cfg, state_dict, ranks, cfg.quant.tune.loss)
    floats = StoredFloats(coded, cfg.quant, ranks.device)
    rates = {True: SCALE_RATE, False: FLOAT_RATE}
    groups = [{"params": [change], "lr": rates[name in floats.grids]} for name, change in floats.changes.items()]
    adam = torch.optim.Adam(groups, betas=(0.9, 0.95))
    steps, rows = cfg.quant.tune.steps, rows_of_steps(cfg, next_batch, ranks)
    schedule = torch.optim.lr_scheduler.LambdaLR(adam, lambda step: 1 - step / steps)
    held_out = [next(rows) for _ in range(HELD_OUT)]
    best, before = coded, losses.mean(floats, held_out)
    least, checks, done = before, 0, 0
    for batch in rows:
        # One clock for all, because every rank has to leave the loop after the same step.
        seconds = ranks.first(time.perf_counter() - start)
        if done == steps or checks == PATIENCE or seconds * (done + 1) / max(done, 1) > seconds_left:
            break
        losses.backward(floats, batch)
        adam.step()
        schedule.step()
        done += 1
        if done % CHECK_EVERY == 0 or done == steps:
            loss, checks = losses.mean(floats, held_out), checks + 1
            if loss < least:
                best, least, checks = floats.stored(), loss, 0
    if fits is not None and best is not coded:
        best = ranks.of_first(fitting_scales(coded, best, fits) if ranks.is_first else {})
        least = losses.mean(StoredFloats(best, cfg.quant, ranks.device), held_out)
    ranks.synchronize()
    return Tuning(best, done, before, least, ranks.first(time.perf_counter() - start))


def rows_of_steps(cfg: Config, next_batch: NextBatch, ranks: Ranks) -> Iterator[Rows]:
    """Yield the rows of one step after another: equally many of every micro-batch, whatever the ranks."""
    count = max(1, cfg.quant.tune.batch_tokens // (cfg.data.micro_batches * cfg.data.train_seq_len))
    while True:
        batches = [[t.to(ranks.device) for t in next_batch()] for _ in range(grad_accum_steps(cfg))]
        for parts in zip(*(zip(*(t.split(count) for t in batch), strict=True) for batch in batches), strict=True):
            yield list(parts)


class StoredFloats:
    """The floats of stored tensors as parameters, which always have values of the dtype that is stored."""

    def __init__(self, coded: CodedTensors, quant: QuantConfig, device: torch.device):
        self.coded, self.quant, self.device = coded, quant, device
        self.changes, self.grids, self.before = dict[str, Tensor](), dict[str, Tensor](), dict[str, Tensor]()
        for name, tensor in coded.items():
            stored = tensor.data if tensor.scale is None else tensor.scale
            if tensor.own is None and stored.is_floating_point():
                self.changes[name] = torch.zeros(stored.shape, device=device, requires_grad=True)
                self.before[name] = stored.to(device)
                if stored is tensor.scale:
                    # Following a trellis takes long and gives the same for every scale.
                    ones = torch.ones_like(stored)
                    grid = CodedTensor(tensor.data, ones, torch.float32, False, tensor.columns, tensor.states)
                    self.grids[name] = decode(grid).to(device)

    def decoded(self) -> dict[str, Tensor]:
        """Return the weights that the stored values stand for, in the order of the tensors."""
        values = dict[str, CodedTensor]()
        for name, tensor in self.coded.items():
            if name in self.grids:
                tensor = CodedTensor(self.grids[name], self._now(name), tensor.dtype, tensor.rotated)
            elif name in self.changes:
                tensor = CodedTensor(self._now(name), None, tensor.dtype)
            values[name] = tensor
        return {name: value.to(self.device) for name, value in dequantize_as(values, self.quant).items()}

    def stored(self) -> dict[str, CodedTensor]:
        """Return the tensors with their values as they are now, on the CPU."""
        found = dict(self.coded)
        for name, before in self.before.items():
            now, was = self._now(name).detach().to(before.dtype).cpu(), found[name]
            is_scale = name in self.grids
            found[name] = dataclasses.replace(was, scale=now) if is_scale else dataclasses.replace(was, data=now)
        return found

    def _now(self, name: str) -> Tensor:
        """Return scale or values of a tensor in float32, rounded as they are stored but for their gradient."""
        before, change = self.before[name], self.changes[name]
        if name in self.grids:
            # Steps are relative to a scale, so that small ones move no further than large ones.
            value = (before.to(change) * change.exp()).clamp(SMALLEST_SCALE, LARGEST_SCALE)
        else:
            value = before.to(change) + change
        return value + (value.detach().to(before.dtype).float() - value.detach())


class TrainedValues(Protocol):
    """Weights of which some are trained, by `changes`."""

    changes: dict[str, Tensor]

    def decoded(self) -> dict[str, Tensor]:
        """Return the weights of a model as they are now."""
        ...


class Losses:
    """Losses of values that are trained: the trained model beside one that takes them. `kind` is `quant.tune.loss`."""

    def __init__(self, cfg: Config, state_dict: Tensors, ranks: Ranks, kind: str = "kl"):
        self.kind = kind
        self.cfg, self.ranks = scored_config(cfg) if trains_apart(cfg) else cfg, ranks
        self.trained, self.stored = (build_scored_model(cfg, ranks.device) for _ in range(2))
        self.trained.load_state_dict(state_dict)

    @torch.no_grad()
    def mean(self, floats: TrainedValues, steps: list[Rows]) -> float:
        """Return the mean loss over all ranks, in nats per token."""
        self.stored.load_state_dict(floats.decoded())
        found = [float(self._loss(*part)) for rows in steps for part in rows]
        total, count = self.ranks.sum(sum(found), len(found))
        return total / count

    def backward(self, floats: TrainedValues, rows: Rows) -> None:
        """Set the gradients of `floats` to those of the mean loss over all ranks."""
        values = floats.decoded()
        self.stored.load_state_dict(values)
        self.stored.zero_grad()
        for part in rows:
            (self._loss(*part) / self.cfg.data.micro_batches).backward()
        reached = [n for n, p in self.stored.named_parameters() if p.grad is not None and values[n].requires_grad]
        given = [self.stored.get_parameter(name).grad for name in reached]
        for change in floats.changes.values():
            change.grad = torch.zeros_like(change)
        torch.autograd.backward([values[name] for name in reached], given)
        self.ranks.sum_tensors([change.grad for change in floats.changes.values() if change.grad is not None])

    def _loss(self, ids: Tensor, targets: Tensor) -> Tensor:
        if self.kind == "loss":
            return self.stored(ids, targets)
        with torch.no_grad():
            wanted = log_likely(self.trained, ids)
        return F.kl_div(log_likely(self.stored, ids), wanted, reduction="sum", log_target=True) / ids.numel()


def log_likely(model: GPT, ids: Tensor) -> Tensor:
    """Return the log-probabilities `[B, T, V]` of the next token."""
    # In float32 from the head on: logits in bf16 differ by more than rounding the weights changes them.
    return model.softcap(model.head(model.hidden(ids).float())).log_softmax(-1)
