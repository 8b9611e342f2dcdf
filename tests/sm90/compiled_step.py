"""Compiled steps for an H100 without one: `python compiled_step.py guard.so case …` prints what each is, as JSON.

A case is a kind and overrides, as in `cubins:experiment=naive_baseline`: `cubins` is the code of a step and its machine
code, `bytes` the code with what each kernel reads and writes, `kernels` the code with the kernels of
`golf/training/model/kernels`, `planted` the code with faults, and `switches` the graphs of a run.
"""

from __future__ import annotations

import functools
import json
import math
import re
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.fake_cuda import load_guard, pretend, put_guard

load_guard(sys.argv[1])

import torch  # noqa: E402
import torch._dynamo  # noqa: E402  # before anything is replaced: it lists torch's functions
import torch._inductor.config  # noqa: E402
from torch._dynamo.utils import counters  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from bench import fake_h100  # noqa: E402
from golf.commands.gpu_speed import kernel_gigabytes  # noqa: E402
from golf.lab.plan.machines import overrides_on, parse_machine  # noqa: E402
from golf.run.progress import Progress  # noqa: E402
from golf.settings.composition import compose  # noqa: E402
from golf.settings.config import Config  # noqa: E402
from golf.settings.hardware import assumed  # noqa: E402
from golf.training.loop.state import TrainState, build_state  # noqa: E402
from golf.training.loop.warmup import synthetic_batch  # noqa: E402
from golf.training.model.gpt import GPT, capped_losses  # noqa: E402
from golf.training.model.kernels.choice import LossKernel, MLPKernel  # noqa: E402
from golf.training.model.rotary import Rotary  # noqa: E402
from golf.training.ranks import Ranks  # noqa: E402
from tests.sm90 import inductor  # noqa: E402

CUDA = torch.device("cuda", 0)
TRANSCENDENTAL = re.compile(r"\b(?:pow|cos|sin)\(")
torch_compile = torch.compile


def configured(overrides: str) -> Config:
    """Return the configuration of two layers for one H100, at full width. `overrides` are separated by spaces."""
    machine = parse_machine("1xh100")
    common = ["model.attention=sdpa", "data=pydocs", "rules.code_bytes=estimate", "model.num_layers=2"]
    with assumed(machine.hardware()):
        return compose(overrides_on(machine, [*common, *overrides.split()]))


def built(cfg: Config, backend: object) -> TrainState:
    """Return the state of a run whose model will be compiled by `backend`."""
    torch.compile = functools.partial(torch_compile, backend=backend)
    return build_state(cfg, Ranks(device=CUDA))


def plant_faults(model: GPT) -> None:
    """Make `model` compute its rotary tables in the graph, and logits in float32."""

    def wide_losses(logits: torch.Tensor, targets: torch.Tensor, cap: float) -> torch.Tensor:
        product = logits.float() @ torch.eye(logits.size(-1), device=logits.device)
        return capped_losses(product, targets, cap)

    model.turns = lambda model, ids, like: Rotary.tables(Rotary(64, 1e4), ids.size(1), like=like)
    model.losses = wide_losses


def step_under_every_switch(cfg: Config, state: TrainState) -> int:
    """Run forward and backward under every set of late switches; return the number of sets."""
    inputs, targets = (t.to(CUDA) for t in synthetic_batch(cfg))
    sets = [state.switches.on, *state.switches.later_sets()]
    for active in sets:
        state.hooks.begin_step(Progress(1, 0.5, 0.5))
        state.model(inputs, targets, active).backward()
    return len(sets)


def code(overrides: str, kind: str) -> dict[str, object]:
    """Return launches of a micro-batch and what its kernels need, from the code of the whole step."""
    codes = fake_h100.Codes()
    # As `golf gpu-check` has them for its profile.
    torch._inductor.config.benchmark_kernel = kind == "bytes"
    cfg = configured(overrides)
    state = built(cfg, codes)
    for kernel in (LossKernel, MLPKernel) if kind == "kernels" else ():
        kernel(state.model).use()
    if kind == "planted":
        plant_faults(state.model)
    inputs, targets = (t.to(CUDA) for t in synthetic_batch(cfg))
    state.model(inputs, targets).backward()
    sources = [pair for text in codes.texts for pair in inductor.kernels(text).items()]
    return {
        "graphs": len(codes.texts),
        "dynamo_graphs": counters["stats"]["unique_graphs"],
        "breaks": dict(counters["graph_break"]),
        "launches": [inductor.launches(text) for text in codes.texts],
        "kernels": len(sources),
        "transcendental": [name for name, source in sources if TRANSCENDENTAL.search(source)],
        "wide": [wide_buffers(text, inputs.numel() * cfg.model.vocab_size) for text in codes.texts],
        "gigabytes": kernel_gigabytes(codes.texts),
        "sources": sources,
    }


def wide_buffers(text: str, numel: int) -> int:
    """Return how many float32 tensors of at least `numel` numbers a graph's code allocates."""
    shapes = re.findall(r"= empty_strided_cuda\(\(([\d, ]+)\), .*torch\.float32\)", text)
    return sum(math.prod(int(size) for size in shape.split(",") if size.strip()) >= numel for shape in shapes)


def cubins(sources: list[tuple[str, str]]) -> list[int]:
    """Compile kernels (name and source) for compute capability 9.0; return the bytes of machine code of each."""
    return [len(inductor.compiled(name, source).asm["cubin"]) for name, source in sources]


def switches(overrides: str) -> dict[str, object]:
    """Return the graphs that a run needs before the clock, and those that its steps add after it."""
    cfg = configured(overrides)
    state = built(cfg, "aot_eager")
    sets = step_under_every_switch(cfg, state)
    warmed = counters["stats"]["unique_graphs"]
    step_under_every_switch(cfg, state)
    return {"sets": sets, "graphs": warmed, "added": counters["stats"]["unique_graphs"] - warmed}


def run(case: str) -> dict[str, object]:
    """Return what a case found."""
    kind, _, overrides = case.partition(":")
    torch._dynamo.reset()
    counters.clear()
    start = time.process_time()
    with FakeTensorMode():
        found = switches(overrides) if kind == "switches" else code(overrides, kind)
    sources: Any = found.pop("sources", [])
    if kind == "cubins":
        found["cubins"] = cubins(sources)
    return {**found, "cpu_seconds": time.process_time() - start}


def main() -> None:
    """Print the findings of the cases on the command line."""
    put_guard(sys.argv[1])
    pretend()
    fake_h100.pretend_h100()
    for case in sys.argv[2:]:
        print(json.dumps({"case": case, **run(case)}), flush=True)


if __name__ == "__main__":
    main()
