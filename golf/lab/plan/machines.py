"""GPU machines that a plan can be made for: memory, and how much slower than the same number of H100s they train."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from golf.challenge import RECORD_GPUS
from golf.errors import GolfError
from golf.settings.hardware import Hardware, node_with


@dataclass(frozen=True)
class GPUKind:
    """A kind of GPU. `slowdown` is the middle of public runs' step times over the formula for as many H100s."""

    name: str  # as torch reports it
    memory_mib: int
    slowdown: float
    spread: tuple[float, float]  # of the slowdown: first and third quartile of public runs
    runs: int  # shapes of public runs behind it

    @property
    def is_rough(self) -> bool:
        """Tell whether so few or so different runs are known that a prediction is a guess."""
        return self.slowdown != 1.0


# Step times of public runs over the prediction for H100s, one value for each author and shape.
KINDS = {
    "h100": GPUKind("NVIDIA H100 80GB HBM3", 81_559, 1.0, (0.985, 1.093), 489),
    "h200": GPUKind("NVIDIA H200", 143_771, 0.94, (0.93, 1.03), 4),
    "a100": GPUKind("NVIDIA A100-SXM4-80GB", 81_920, 2.27, (2.14, 2.36), 13),
    "4090": GPUKind("NVIDIA GeForce RTX 4090", 24_564, 3.0, (2.8, 3.15), 7),
    "5090": GPUKind("NVIDIA GeForce RTX 5090", 32_607, 2.4, (2.0, 3.2), 7),
}


@dataclass(frozen=True)
class Machine:
    """A number of GPUs of one kind."""

    gpus: int
    kind: GPUKind

    @property
    def title(self) -> str:
        """Return the machine's name, such as `8× NVIDIA H100 80GB HBM3`, as runs record it."""
        return f"{self.gpus}× {self.kind.name}"

    def hardware(self) -> Hardware:
        """Return the hardware that `auto` settings choose for."""
        return node_with(self.gpus, self.kind.name)


def parse_machine(text: str) -> Machine:
    """Return the machine that `text`, such as `8xh100` or `4090`, names. Raises `GolfError` for an unknown one."""
    match = re.fullmatch(r"(?:([1-9]\d*)[x×])?(\w+)", text.strip().lower())
    if match is None or match[2] not in KINDS:
        how = f"write 8xh100 or 1x and one of {', '.join(KINDS)}, or here"
        raise GolfError(f"{text!r} is no machine that golf knows: {how}.")
    return Machine(int(match[1] or 1), KINDS[match[2]])


def overrides_on(machine: Machine | None, overrides: Sequence[str]) -> list[str]:
    """Return `overrides` with the scale and the number of ranks of `machine` where they name none."""
    if machine is None:
        return list(overrides)
    named = {override.lstrip("+").partition("=")[0] for override in overrides}
    added = {"scale": "record" if machine.gpus >= RECORD_GPUS else "single_gpu", "launch.nproc": str(machine.gpus)}
    return [*overrides, *(f"{key}={value}" for key, value in added.items() if key not in named)]


def machine_like(title: str) -> Machine | None:
    """Return the machine whose runs record `title`; None for a CPU and for GPUs that golf does not know."""
    if (match := re.fullmatch(r"(\d+)× (.+)", title)) is None:
        return None
    # Other builds of a card have longer names, and slower ones say so: PCIe, NVL.
    known = [kind for key, kind in KINDS.items() if re.search(rf"\b{key}\b", match[2].lower())]
    return Machine(int(match[1]), known[0]) if known and not re.search(r"pcie|nvl", match[2].lower()) else None
