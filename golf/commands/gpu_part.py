"""One part of `golf gpu-check` in a process of its own: `python -m golf.commands.gpu_part ORDER`, an order in JSON.

An error of CUDA spoils its process, and a kernel may never end. So the command starts each part like this. The process
prints a line of JSON with the names of its rows, then one when a row begins and one with its answer.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from golf.system import die_with_parent

Answer = tuple[bool, str]  # whether all is in order, and a detail
Task = tuple[str, Callable[[], Answer]]  # a row of the report, and what fills it
SPOILED = 3  # exit status of a process whose GPU answers nothing any more


@dataclass(frozen=True)
class Order:
    """Instructions for a part, which its process reads."""

    part: str
    tasks: str  # module and function that returns the tasks
    device: str = "cuda"
    overrides: list[str] = field(default_factory=list)
    steps: int = 20
    train_seconds: float = 0.0
    presets: list[str] = field(default_factory=list)
    against: str = ""  # public train_gpt.py, or its folder
    skipped: list[str] = field(default_factory=list)  # rows that have their answer
    postponed: list[str] = field(default_factory=list)  # rows that failed before, which may do so again

    @property
    def scale(self) -> list[str]:
        """Return the overrides without the experiment, for presets that the part names itself."""
        return [override for override in self.overrides if not override.startswith("experiment=")]

    def without(self, *names: str) -> Order:
        """Return the order for the rows that are not among `names`."""
        return replace(self, skipped=[*self.skipped, *names])


def tasks_of(order: Order) -> list[Task]:
    """Return the tasks that are left, those that failed before at the end."""
    module, _, function = order.tasks.partition(":")
    found: Iterable[Task] = getattr(importlib.import_module(module), function)(order)
    left = [task for task in found if task[0] not in order.skipped]
    return sorted(left, key=lambda task: task[0] in order.postponed)


def one_line(error: Exception) -> str:
    """Return kind and sentence of `error` for a cell of a table, at most 200 characters of it."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}".replace("|", "/")


def answer_of(task: Callable[[], Answer]) -> Answer:
    """Return the answer of `task`; an error is one, too."""
    try:
        return task()
    # Compilers and libraries fail in many ways, and the other rows tell more than a traceback.
    except Exception as error:
        return False, one_line(error)


def is_spoiled(device: str) -> bool:
    """Tell whether the GPU of this process answers every call with an earlier error."""
    import torch

    try:
        if device == "cuda":
            torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


def main() -> int:
    """Fill the rows of the order on the command line; returns `SPOILED` if the process is of no use any more."""
    die_with_parent()
    order = Order(**json.loads(sys.argv[1]))
    # Libraries print, too. What they say goes where errors go.
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def tell(**event: Any) -> None:
        print(json.dumps(event), file=events, flush=True)

    tasks = tasks_of(order)
    tell(rows=[what for what, _ in tasks])
    for what, task in tasks:
        tell(began=what)
        passed, detail = answer_of(task)
        tell(what=what, passed=passed, detail=detail)
        if not passed and is_spoiled(order.device):
            return SPOILED
    return 0


def as_json(order: Order) -> str:
    """Return `order` as `main` reads it."""
    return json.dumps(asdict(order))


if __name__ == "__main__":
    sys.exit(main())
