"""Faults that a run on GPUs must not have, planted one at a time: `FAULTS` has for each the case in which it shows.

Those of `REVIEWED` are from a review that found the suite blind to nine of them; the others were planted afterwards.
"""

from __future__ import annotations

import functools
import gc
import os
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch.nn.attention import varlen

from golf.training import ranks
from golf.training.data.prefetch import Prefetched
from golf.training.loop import checkpoint, state, steps, training, warmup
from golf.training.loop.clock import TrainClock
from golf.training.loop.switches import Switches
from golf.training.model import attention, documents
from golf.training.model.rotary import Rotary
from golf.training.optim import groups, muon, parallel_muon
from golf.training.optim.adam import Adam
from golf.training.optim.clipping import squared_norm
from golf.training.optim.parallel_muon import Exchange, ParallelMuon
from golf.training.scoring.lora import BatchLoRA
from golf.training.scoring.tally import Tally
from ideas.ema.ema import MovingAverage


class Fault(NamedTuple):
    """A function or method of golf with something else in its place."""

    case: str  # of dry_run.py
    sign: str  # what the findings of the case say then
    owner: Any
    name: str
    planted: Callable[..., Any]  # function of the plain one that returns what is planted


class Proxy(types.SimpleNamespace):
    """A module in which some names mean something else."""

    def __init__(self, module: Any, **values: Any):
        super().__init__(**values)
        self.module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)


def before(action: Callable[..., Any]) -> Callable[..., Any]:
    """Plant `action` before the plain function; it has the same arguments."""

    def planted(plain: Any) -> Any:
        def both(*args: Any, **kwargs: Any) -> Any:
            action(*args)
            return plain(*args, **kwargs)

        return both

    return planted


def after(action: Callable[..., Any]) -> Callable[..., Any]:
    """Plant `action` behind the plain function; it has the same arguments."""

    def planted(plain: Any) -> Any:
        def both(*args: Any, **kwargs: Any) -> Any:
            result = plain(*args, **kwargs)
            action(*args)
            return result

        return both

    return planted


def instead(function: Any) -> Callable[..., Any]:
    return lambda plain: function


def gather_transposed(exchange: Exchange, updates: torch.Tensor) -> None:
    exchange._own, exchange._updates = None, exchange.batch
    exchange._work = parallel_muon.all_gather(exchange.batch, updates.mT.contiguous().mT, async_op=True)


def forget_work(exchange: Exchange, *_: object) -> None:
    exchange._work = None


def rate_from_the_host(values: list[torch.Tensor], updates: list[torch.Tensor], lr: float, decay: float) -> None:
    for value, update in zip(values, updates, strict=True):
        value.add_(update * torch.tensor(-lr).to(value.device, non_blocking=True))


def average_on_the_host(average: MovingAverage, *_: object) -> None:
    average.average = {name: torch.zeros(t.shape) for name, t in average.average.items()}


def draw_on_the_host(plain: Any) -> Any:
    def drawn(lora: BatchLoRA, *sizes: Any) -> Any:
        device, lora.device = lora.device, torch.device("cpu")
        made = plain(lora, *sizes)
        lora.device = device
        return made.to(device)

    return drawn


def own_norm(optimizer: ParallelMuon) -> torch.Tensor:
    return squared_norm([m for grads in optimizer.gradients() for m in grads.unbind()], optimizer.device)


def in_another_order(optimizer: ParallelMuon, *_: Any) -> None:
    if optimizer.exchanges[0].batch.device.index and os.environ["DRY_RANK"] == "7":
        optimizer.exchanges.reverse()


def clip_on_the_host(gradients: Any, squared: torch.Tensor, most: float) -> None:
    torch._foreach_mul_(list(gradients), min(1.0, most / squared.sqrt().item()))


def no_numbers(*_: object) -> None:
    pass


# Lines of this rank's own environment, as if it did not know which of its machine's GPUs is its.
ANY_GPU = Proxy(os, environ={"RANK": "3", "WORLD_SIZE": "8"})

REVIEWED = {
    "a loss is read in the step": Fault(
        "muon", "steps.py", groups.Optimizer, "step", before(lambda o, *_: next(o.parameters()).sum().item())
    ),
    "losses are summed on the CPU": Fault(
        "muon", "device", steps, "torch", lambda torch: Proxy(torch, zeros=lambda *size, device: torch.zeros(*size))
    ),
    "a query's last dimension is not contiguous": Fault(
        "muon", "contiguous last", attention, "apply_rotary", lambda plain: lambda *x: plain(*x).mT.contiguous().mT
    ),
    "scores send memory that is not pinned": Fault(
        "flat",
        "tally.py",
        ranks.Ranks,
        "send",
        instead(lambda ranks, array: torch.from_numpy(array).to(ranks.device, non_blocking=True)),
    ),
    "a rate comes from the host for each matrix": Fault(
        "muon", "parallel_muon.py", muon.MatrixOptimizer, "apply", instead(staticmethod(rate_from_the_host))
    ),
    "updates in float32 for a gather in bf16": Fault(
        "muon",
        "all_gather of torch.float32 into",
        Exchange,
        "start_gather",
        lambda plain: lambda e, u: plain(e, u.float()),
    ),
    "updates that are not contiguous": Fault(
        "muon", "all_gather of a tensor that is not contiguous", Exchange, "start_gather", instead(gather_transposed)
    ),
    "a gather is not waited for": Fault(
        "muon", "what all_gather has not written yet", Exchange, "finish", before(forget_work)
    ),
    "Adam's gradients are not averaged": Fault(
        "muon", "depend on this rank's batch alone", parallel_muon, "_start_average", instead(no_numbers)
    ),
    "sharded Muon sums nothing": Fault(
        "ddp", "depend on this rank's batch alone", muon, "dist", lambda dist: Proxy(dist, all_reduce=no_numbers)
    ),
    "every rank takes the first GPU": Fault("join", "a rank of GPU 3 took", ranks, "os", instead(ANY_GPU)),
    "batches of the loader are not pinned": Fault(
        "loop", "steps.py", Prefetched, "_make", instead(lambda loader: loader._loader.next_batch())
    ),
    "the clock is exact in every step": Fault(
        "loop",
        "waits in ranks.py",
        TrainClock,
        "agreed_seconds",
        lambda plain: lambda clock, exact=False: plain(clock, exact=True),
    ),
    "the moving average is on the CPU": Fault(
        "muon", "tensors on several devices", MovingAverage, "__init__", after(average_on_the_host)
    ),
}

FURTHER = {
    "low-rank factors come from the host": Fault("lora", "lora.py", BatchLoRA, "_new", draw_on_the_host),
    "test-time training sums no gradients": Fault(
        "sgd", "depend on this rank's batch alone", ranks.Ranks, "sum_tensors", instead(no_numbers)
    ),
    "a reduction is not waited for": Fault(
        "muon", "what reduce_scatter has not written yet", Exchange, "own_gradients", before(forget_work)
    ),
    "gradients are zeroed while they travel": Fault(
        "muon", "still uses", Exchange, "start_reduction", after(lambda exchange: exchange.batch.zero_())
    ),
    "ranks exchange in different orders": Fault(
        "muon", "orders differ", ParallelMuon, "share_out", after(in_another_order)
    ),
    "Adam counts steps on the CPU": Fault(
        "ddp",
        "tensors on several devices",
        Adam,
        "__init__",
        after(lambda adam, *_: adam.state.update(steps=[torch.zeros(()) for _ in adam.params])),
    ),
    "the loss is read in every step": Fault(
        "loop", "waits in training.py", training, "FIRST_STEPS_LOGGED", instead(99)
    ),
    "the norm of a clip is read": Fault("muon", "groups.py", groups, "scale_to_norm", instead(clip_on_the_host)),
    "a score's sum is on the CPU": Fault(
        "flat", "tally.py", Tally, "__init__", after(lambda tally, *_: setattr(tally, "nats", torch.zeros(()).double()))
    ),
    "a clip knows this rank's norm alone": Fault(
        "muon", "depend on this rank's batch alone", ParallelMuon, "squared_norm", instead(own_norm)
    ),
    "a tensor lands on the first GPU": Fault(
        "muon", "and this rank has cuda:3", groups.Optimizer, "step", before(lambda *_: torch.zeros(3, device="cuda:0"))
    ),
    "a table of documents in int64": Fault(
        "documents", "int32", documents, "cumulative_lengths", lambda plain: lambda *x: plain(*x).long()
    ),
}


def shared_buffer(loader: Prefetched) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the next batch in pinned memory that every batch is written to."""
    batch = loader._loader.next_batch()
    if not hasattr(loader, "buffer"):
        loader.buffer = tuple(t.clone().pin_memory() for t in batch)  # type: ignore[attr-defined]
    for buffer, new in zip(loader.buffer, batch, strict=True):  # type: ignore[attr-defined]
        buffer.numpy()[...] = new.numpy()
    return loader.buffer  # type: ignore[attr-defined]


KEPT: list[torch.Tensor] = []


def send_from_one_buffer(ranks: ranks.Ranks, array: Any) -> torch.Tensor:
    """Send `array` by pinned memory that is used again for arrays of its size."""
    new = torch.from_numpy(array)
    kept = [t for t in KEPT if t.shape == new.shape and t.dtype == new.dtype]
    if not kept:
        KEPT.append(torch.empty_like(new).pin_memory())
    buffer = kept[0] if kept else KEPT[-1]
    buffer.copy_(new)
    sent = buffer.to(ranks.device, non_blocking=True)
    ranks.watch.batch(sent) if hasattr(ranks, "watch") else None
    return sent


def overwritten_targets(plain: Any) -> Any:
    def step(own: steps.TrainStep, next_batch: Any, *others: Any) -> Any:
        batches = []

        def noted() -> Any:
            batches.append(next_batch())
            return batches[-1]

        loss = plain(own, noted, *others)
        batches[-1][1].fill_(-1)
        return loss

    return step


def ask_for_determinism(*_: object) -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)


def measure_memory(*_: object) -> None:
    torch.cuda.max_memory_allocated()


def toggle_tf32(*_: object) -> None:
    torch.backends.cuda.matmul.allow_tf32 = not torch.backends.cuda.matmul.allow_tf32


def without(what: str) -> Callable[..., Any]:
    """Plant a warm-up that knows nothing of late switches, of stages, or of the loader's strides."""

    def planted(plain: Any) -> Any:
        def run_steps(cfg: Any, state: Any, on_step: Any) -> None:
            patches: dict[str, Any] = {
                "switches": patch.object(Switches, "later_sets", lambda _: []),
                "stages": patch.object(warmup, "has_stages", lambda _: False),
                "rows": patch.object(warmup, "is_packed", lambda _: False),
            }
            with patches[what]:
                plain(cfg, state, on_step)

        return run_steps

    return planted


# What the host does that is no operation, memory that a copy still reads, and what only the loop reaches.
OF_THE_HOST = {
    "the cache is emptied in every step": Fault(
        "muon", "empty_cache is called", groups.Optimizer, "step", before(lambda *_: torch.cuda.empty_cache())
    ),
    "the GPU is chosen in every step": Fault(
        "loop", "set_device is called", groups.Optimizer, "step", before(lambda *_: torch.cuda.set_device(0))
    ),
    "memory is measured in every step": Fault(
        "loop",
        "max_memory_allocated is called",
        TrainClock,
        "agreed_seconds",
        after(lambda *_: torch.cuda.max_memory_allocated()),
    ),
    "garbage is collected in every step": Fault(
        "loop", "gc.collect is called", TrainClock, "agreed_seconds", after(lambda *_: gc.collect())
    ),
    "a step switches TF32": Fault("muon", "TF32 in products", groups.Optimizer, "step", after(toggle_tf32)),
    "a step asks for deterministic operations": Fault(
        "muon",
        "deterministic operations: ",
        groups.Optimizer,
        "step",
        after(ask_for_determinism),
    ),
    "attention may run by plain operations": Fault(
        "muon",
        "attention by plain operations",
        state,
        "choose_kernel",
        after(lambda *_: torch.backends.cuda.enable_math_sdp(True)),
    ),
    "batches share one buffer": Fault(
        "loop", "memory changes while the copy of steps.py", Prefetched, "_make", instead(shared_buffer)
    ),
    "scores share one buffer": Fault("flat", "may still read", ranks.Ranks, "send", instead(send_from_one_buffer)),
    "targets are overwritten behind their copy": Fault(
        "muon", "writes what the copy of steps.py", steps.TrainStep, "__call__", overwritten_targets
    ),
    "the warm-up knows no late switches": Fault(
        "stages", "the loop reaches what the warm-up does not", warmup, "run_steps", without("switches")
    ),
    "the warm-up knows no stages": Fault(
        "stages", "the loop reaches what the warm-up does not", warmup, "run_steps", without("stages")
    ),
    "the warm-up's rows are not the loader's": Fault(
        "stages", "the loop reaches what the warm-up does not", warmup, "run_steps", without("rows")
    ),
}


def copied_without_waiting(plain: Any) -> Any:
    def flatten(tree: Any, prefix: str = "") -> dict[str, torch.Tensor]:
        if isinstance(tree, torch.Tensor):
            return {prefix: tree.detach().contiguous().to("cpu", non_blocking=True).clone()}
        return plain(tree, prefix)

    return flatten


def looking_ahead(plain: Any) -> Any:
    @functools.wraps(plain)
    def attend(*given: Any, **options: Any) -> Any:
        return plain(*given, **{**options, "window_size": (-1, -1)})

    return attend


def summed_on_the_device(ranks: ranks.Ranks, *values: float) -> list[float]:
    tensor = torch.tensor(values, dtype=torch.float64, device=ranks.device)
    torch.distributed.all_reduce(tensor)
    return tensor.tolist()


# Of lists that were written without knowledge of this suite, what it had missed and shows on the device.
UNSEEN = {
    "a checkpoint reads what was not copied yet": Fault(
        "checkpoint", "may not have written yet", checkpoint, "flatten", copied_without_waiting
    ),
    "rotary tables are kept for the CPU": Fault(
        "muon",
        "depend on no weight and no batch",
        Rotary,
        "keep",
        lambda plain: lambda rotary, length, like: plain(rotary, length, torch.empty_like(like, device="cpu")),
    ),
    "numbers of the host are summed by the GPUs": Fault(
        "loop", "waits in ranks.py", ranks.Ranks, "sum", instead(summed_on_the_device)
    ),
    "attention by pieces looks ahead": Fault("documents", "sees later ones", varlen, "varlen_attn", looking_ahead),
}

FAULTS = REVIEWED | FURTHER | OF_THE_HOST | UNSEEN


KINDS = ("faults", "waits", "pageable", "wide", "host")  # of what a case found


def is_noticed(fault: Fault, found: dict[str, Any], clean: dict[str, Any]) -> bool:
    """Tell whether what a case `found` names the planted fault, and what it found without one does not."""
    lines = {line for key in KINDS for line in found.get(key, ())}
    known = {line for key in KINDS for line in clean.get(key, ())}
    return any(fault.sign in line for line in (found.get("error", ""), *(lines - known)))


@contextmanager
def planted(name: str) -> Iterator[str]:
    """Plant a fault for the block; yields the case in which it shows."""
    fault = FAULTS[name]
    plain = fault.owner.__dict__[fault.name] if isinstance(fault.owner, type) else getattr(fault.owner, fault.name)
    tf32 = torch.backends.cuda.matmul.allow_tf32
    with patch.object(fault.owner, fault.name, fault.planted(plain)):
        yield fault.case
    # Switches that a fault has left for the process.
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.use_deterministic_algorithms(False)
