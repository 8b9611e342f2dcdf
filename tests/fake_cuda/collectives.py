"""Ranks without other ranks: collectives that check what NCCL would ask, and what is done with their tensors.

`Watch` follows two facts about the memory of tensors. What depends on this rank's batch alone is *local*: a parameter
that becomes local would drift away from the other ranks'. What a collective reads or writes is *travelling* until its
`Work` is waited for: using it before is a race.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from golf.training.loop import steps
from golf.training.optim import parallel_muon
from golf.training.ranks import Ranks
from tests.fake_cuda.tensors import memory, tensors_in

OVERWRITING = ("copy_", "_foreach_copy_", "zero_", "fill_")
WITH_ONE_DEVICE = ("_foreach_", "_fused_")


class Watch:
    """A stand-in for a rank on `device` that checks its tensors; `faults` has a sentence for each mistake, once."""

    def __init__(self, device: torch.device):
        self.device = device
        self.faults: list[str] = []
        self.order: list[str] = []  # collectives with dtype and numbers, which have to be the same on every rank
        self.local: set[int] = set()
        self.writing: dict[int, str] = {}  # memory that a collective writes, and which
        self.reading: dict[int, str] = {}

    def fault(self, sentence: str) -> None:
        if sentence not in self.faults:
            self.faults.append(sentence)

    def batch(self, *tensors: Tensor) -> None:
        """Note that `tensors` are this rank's own."""
        self.local |= {memory(tensor) for tensor in tensors}

    def operation(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> None:
        """Follow an operation of torch that has run."""
        name, schema = func.name().partition("::")[2], func._schema.arguments
        given = [*zip(schema, args, strict=False), *((a, kwargs[a.name]) for a in schema if a.name in kwargs)]
        used = [t for _, value in given for t in tensors_in(value)]
        written = [t for a, value in given if a.alias_info and a.alias_info.is_write for t in tensors_in(value)]
        if name.startswith(WITH_ONE_DEVICE) and len({t.device for t in used}) > 1:
            raise RuntimeError(f"{name} of tensors on several devices: {sorted({str(t.device) for t in used})}")
        known, made = {memory(t) for t in used}, list(tensors_in(result))
        if not written and made and all(memory(t) in known for t in made):
            return  # a view
        for tensor in written:
            if (key := memory(tensor)) in self.writing or key in self.reading:
                self.fault(f"{name} writes what {self.writing.get(key) or self.reading.get(key)} still uses")
        for tensor in used:
            if memory(tensor) in self.writing:
                self.fault(f"{name} reads what {self.writing[memory(tensor)]} has not written yet")
        lists = [value for _, value in given if isinstance(value, list | tuple) and [*tensors_in(value)]]
        for number, tensor in enumerate((*written, *(t for t in made if memory(t) not in known))):
            read = used
            if name.startswith(WITH_ONE_DEVICE):
                # Each place of the lists is an operation of its own.
                read = [part[number % len(lists[0])] for part in lists if len(part) == len(lists[0])]
                read = read[1:] if name.startswith("_foreach_copy_") else read
                read += [value for _, value in given if isinstance(value, Tensor)]
            elif name.startswith("copy_") and _is_whole(used[0]):
                read = used[1:]  # it does not read what it overwrites
            if any(memory(t) in self.local for t in read):
                self.local.add(memory(tensor))
            elif memory(tensor) not in known or (_is_whole(tensor) and name.startswith(OVERWRITING)):
                self.local.discard(memory(tensor))
        for tensor in made:
            if tensor.device.type == "cuda" and tensor.device != self.device:
                self.fault(f"{name} on {tensor.device}, and this rank has {self.device}")

    def collective(self, kind: str, out: Tensor, source: Tensor, *, is_shared: bool, later: bool) -> Any:
        """Check a collective that reads `source` and writes `out`, which then is the same on every rank or not."""
        self.order.append(f"{kind} {source.dtype} {source.numel()}")
        for tensor in (out, source):
            if tensor.device != self.device:
                self.fault(f"{kind} of a tensor on {tensor.device}, and NCCL is bound to {self.device}")
            if not tensor.is_contiguous():
                self.fault(f"{kind} of a tensor that is not contiguous")
        if out.dtype != source.dtype:
            self.fault(f"{kind} of {source.dtype} into {out.dtype}")
        if kind != "all_reduce" and not self._is_in_place(out, source):
            self.fault(f"{kind} writes into what other ranks still send")
        if memory(source) in self.writing:
            self.fault(f"{kind} reads what {self.writing[memory(source)]} has not written yet")
        if is_shared:
            self.local.discard(memory(out))
        elif memory(source) in self.local:
            self.local.add(memory(out))
        return Work(self, kind, out, source) if later else None

    @staticmethod
    def _is_in_place(out: Tensor, source: Tensor) -> bool:
        """Tell whether two tensors share no memory, or the smaller one is this rank's own part of the other."""
        if memory(out) != memory(source):
            return True
        part, whole = sorted((out, source), key=Tensor.numel)
        first = whole.storage_offset() + int(os.environ["DRY_RANK"]) * part.numel()
        return part.storage_offset() == first

    def end(self, model: nn.Module) -> None:
        """Note what is still travelling at the end, and what `parameters` finds."""
        for kind in {*self.writing.values(), *self.reading.values()}:
            self.fault(f"{kind} is never waited for")
        self.parameters(model)

    def parameters(self, model: nn.Module) -> None:
        """Note parameters that are not those of the other ranks."""
        drifting = [name for name, p in model.named_parameters() if memory(p) in self.local]
        if drifting:
            self.fault(f"{len(drifting)} parameters depend on this rank's batch alone, such as {drifting[0]}")


def _is_whole(tensor: Tensor) -> bool:
    return tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()


class Work:
    """A collective on its way."""

    def __init__(self, watch: Watch, kind: str, out: Tensor, source: Tensor):
        self.watch, self.tensors = watch, (out, source)
        watch.writing[memory(out)] = kind
        watch.reading[memory(source)] = kind

    def wait(self) -> None:
        out, source = self.tensors
        self.watch.writing.pop(memory(out), None)
        self.watch.reading.pop(memory(source), None)


class Averaging(nn.Module):
    """DDP: gradients are those of all ranks at the end of a backward pass, except within `no_sync`."""

    def __init__(self, model: nn.Module, watch: Watch):
        super().__init__()
        self.inner, self.is_on = [model], True
        for param in model.parameters():
            param.register_post_accumulate_grad_hook(lambda p: self.average(watch, p))

    def average(self, watch: Watch, param: Tensor) -> None:
        if self.is_on and param.grad is not None:
            watch.local.discard(memory(param.grad))

    def forward(self, *inputs: Any) -> Any:
        return self.inner[0](*inputs)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        self.is_on = False
        yield
        self.is_on = True


class RankOf8(Ranks):
    """One of eight ranks, whose numbers go nowhere."""

    watch: Watch

    def sum(self, *values: float) -> list[float]:
        super().sum(*values)
        return list(values)

    def first(self, value: float) -> float:
        super().first(value)
        return value

    def send(self, array: Any) -> Tensor:
        sent = super().send(array)
        self.watch.batch(sent)
        return sent


def install(watch: Watch) -> None:
    """Put `watch` in the place of the collectives that golf calls, and of DDP."""

    def all_reduce(tensor: Tensor, op: Any = None, async_op: bool = False) -> Any:
        if tensor.device.type == "cpu" and tensor.dtype == torch.float64:
            # By gloo, which is what numbers of the host are for.
            return watch.order.append(f"sum of {tensor.numel()}")
        return watch.collective("all_reduce", tensor, tensor, is_shared=True, later=async_op)

    def reduce_scatter(out: Tensor, source: Tensor, op: Any = None, async_op: bool = False) -> Any:
        return watch.collective("reduce_scatter", out, source, is_shared=False, later=async_op)

    def all_gather(out: Tensor, source: Tensor, async_op: bool = False) -> Any:
        return watch.collective("all_gather", out, source, is_shared=True, later=async_op)

    RankOf8.watch = watch
    places: dict[Any, dict[str, Any]] = {
        dist: {"all_reduce": all_reduce},
        parallel_muon: {"reduce_scatter": reduce_scatter, "all_gather": all_gather},
        steps: {"DistributedDataParallel": lambda model, **_: Averaging(model, watch)},
    }
    for owner, functions in places.items():
        for name, function in functions.items():
            setattr(owner, name, function)
