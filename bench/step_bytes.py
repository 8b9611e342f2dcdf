"""Kernels, bytes and FLOPs of the step that an H100 would run, counted without one: `python -m bench.step_bytes`.

Inductor compiles forward and backward pass of a micro-batch for compute capability 9.0 on tensors without numbers, and
says what each kernel reads and writes; nothing runs. The overrides are those of a run (default: the naive baseline).
`--against FILE` adds a public train_gpt.py, set up by its own environment variables. It needs g++ and Triton.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.fake_cuda import build_guard, load_guard, pretend, put_guard
from golf.errors import GolfError
from golf.exits import exit_status

if TYPE_CHECKING:
    from bench.step_costs import Costs, Kernel

PHASES = ("forward", "backward", "optimizer")
COLUMNS = ("step", "part", "kernels", "GB read", "GB written", "GB", "TFLOP", "ms at the peaks")


def options() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", help="as for golf/train.py, such as experiment=gold6_11l")
    parser.add_argument("--against", type=Path, metavar="FILE", help="a public train_gpt.py, or its folder")
    parser.add_argument("--late", action="store_true", help="with all late switches on, such as looped layers")
    parser.add_argument(
        "--largest", type=int, default=0, metavar="N", help="list the N kinds of kernel with most bytes"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every kernel there")
    return parser.parse_intermixed_args()


def load_fake_gpu(folder: Path) -> None:
    """Give torch, which is not imported yet, a fake H100. Raises `GolfError` where that cannot be."""
    import importlib.util

    if shutil.which("g++") is None or importlib.util.find_spec("triton") is None:
        raise GolfError('step_bytes needs g++ and Triton: install g++, and pip install "golf[kernels]".')
    # Its path without importing it.
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.origin is not None
    try:
        library = str(build_guard(folder, Path(spec.origin).parent))
    except subprocess.CalledProcessError as error:
        raise GolfError(f"g++ does not compile the fake device: {error.stderr.strip().splitlines()[-1]}") from error
    load_guard(library)
    import torch
    import torch._dynamo  # before anything is replaced: it lists torch's functions

    if torch.cuda.is_initialized():
        raise GolfError("step_bytes pretends a GPU and needs a process that has none: set CUDA_VISIBLE_DEVICES=''.")
    put_guard(library)
    from bench.fake_h100 import pretend_h100

    pretend()
    pretend_h100()


def golf_step(overrides: list[str], costs: Costs, device: Any, *, late: bool) -> int:
    """Run a micro-batch and the optimizer of one rank that owns all matrices; return the tokens of the micro-batch."""
    import torch

    from bench.fake_h100 import replace
    from golf.lab.plan.machines import overrides_on, parse_machine
    from golf.run.progress import Progress
    from golf.settings.composition import compose
    from golf.settings.hardware import assumed
    from golf.training.loop.state import build_state
    from golf.training.loop.warmup import synthetic_batch
    from golf.training.model.kernels import choice
    from golf.training.model.kernels.trial import Outcome
    from golf.training.ranks import Ranks

    machine = parse_machine("8xh100")
    with assumed(machine.hardware()):
        cfg = compose(overrides_on(machine, ["rules.code_bytes=estimate", *overrides]))
    # A trial takes times on the device: the kernels that the configuration asks for count as equal and as fast.
    replace(choice, _outcome=lambda kernel, _, device, **__: Outcome(kernel.problem(device)))
    plain = torch.compile
    replace(torch, compile=costs.compile)
    try:
        state = build_state(cfg, Ranks(device=device))
    finally:
        replace(torch, compile=plain)
    for line in state.kernels:
        print(line.partition(" ")[0], file=sys.stderr)
    sets = [state.switches.on, *state.switches.later_sets()]
    inputs, targets = (t.to(device) for t in synthetic_batch(cfg))
    state.hooks.begin_step(Progress(1, 0.5, 0.5))
    state.model(inputs, targets, sets[-1 if late else 0]).backward()
    costs.update(state.model, lambda: state.step.optimizer.step(1.0, 0.95))
    return inputs.numel()


def rows_of(step: str, kernels: Iterable[Kernel]) -> list[list[str]]:
    """Return a row for each part of a step, and one for forward and backward together."""
    by_phase = {phase: [k for k in kernels if k.phase == phase] for phase in PHASES}
    parts = {**by_phase, "forward and backward": by_phase["forward"] + by_phase["backward"]}
    order = ("forward", "backward", "forward and backward", "optimizer")
    return [[step, part, *_sums(parts[part])] for part in order]


def _sums(kernels: list[Kernel]) -> list[str]:
    read, written = sum(k.read for k in kernels), sum(k.written for k in kernels)
    flops, ms = sum(k.flops for k in kernels), sum(k.ms for k in kernels)
    launches = sum(k.launches for k in kernels)
    return [
        str(launches),
        *(f"{n / 1e9:.1f}" for n in (read, written, read + written)),
        f"{flops / 1e12:.2f}",
        f"{ms:.1f}",
    ]


def largest(step: str, kernels: Iterable[Kernel], count: int) -> list[list[str]]:
    """Return a row for each of the `count` kinds of kernels of `step` with most bytes."""
    groups: dict[tuple[str, str, str], list[Kernel]] = {}
    for kernel in kernels:
        groups.setdefault((kernel.phase, kernel.kind, kernel.name), []).append(kernel)
    most = sorted(groups.items(), key=lambda item: -sum(k.read + k.written for k in item[1]))[:count]
    return [[step, f"{phase}, {kind}: {name[:70]}", *_sums(group)] for (phase, kind, name), group in most]


def table(rows: list[list[str]]) -> str:
    """Return `rows` below COLUMNS in Markdown."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [COLUMNS, ["---"] * len(COLUMNS), *rows])


def measure(a: argparse.Namespace) -> None:
    """Count what was asked for, print the table, write the JSON."""
    with tempfile.TemporaryDirectory() as folder:
        load_fake_gpu(Path(folder))
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from bench.public import public_script
    from bench.public_step import public_step
    from bench.step_costs import Costs

    script = public_script(a.against) if a.against else None
    device, found = torch.device("cuda", 0), dict[str, tuple[int, list[Any]]]()
    for name in ("golf", "public")[: 1 + (script is not None)]:
        torch._dynamo.reset()
        costs = Costs()
        with FakeTensorMode():
            if name == "golf":
                tokens = golf_step(a.overrides, costs, device, late=a.late)
            else:
                assert script is not None
                tokens = public_step(script, costs, device, late=a.late)
        found[name] = tokens, costs.kernels
        print(f"counted {name}: {tokens:,} tokens a micro-batch", file=sys.stderr)
    rows = [row for name, (_, kernels) in found.items() for row in rows_of(name, kernels)]
    rows += [row for name, (_, kernels) in found.items() for row in largest(name, kernels, a.largest)]
    print(table(rows))
    if len({tokens for tokens, _ in found.values()}) > 1:
        print("\nThe two have micro-batches of different sizes: compare the bytes of a token.")
    if a.json:
        steps = {
            name: {"tokens": tokens, "kernels": [dataclasses.asdict(k) for k in kernels]}
            for name, (tokens, kernels) in found.items()
        }
        a.json.write_text(json.dumps({"torch": torch.__version__, "steps": steps}, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    """Count what the command line asks for; returns 0."""
    measure(options())
    return 0


if __name__ == "__main__":
    sys.exit(exit_status(main))
