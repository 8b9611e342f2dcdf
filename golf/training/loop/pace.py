"""How fast this machine trains, against what machines of its kind did before: a slow one is named before the clock.

Every check is recorded in `<runs root>/speeds.jsonl`. The first run of a shape on a kind of machine only records.
"""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from golf.run.environment import machine_kind
from golf.run.folder import runs_root
from golf.run.identity import identity
from golf.settings.config import Config
from golf.training.loop.schedule import muon_momentum
from golf.training.loop.steps import TrainStep
from golf.training.ranks import Ranks

GPU_STEPS = 30
SLOW = 1.15  # times the median of earlier runs
REMEMBERED = 50  # earlier runs that the median is over
WORK = ("model.", "tech.", "data.train_batch_tokens", "data.train_seq_len", "data.micro_batches", "optim.muon")


@dataclass(frozen=True)
class Speed:
    """One check: milliseconds a step, and the median of earlier checks of the same work on the same kind."""

    step_ms: float
    reference_ms: float | None
    runs: int

    @property
    def slowdown(self) -> float | None:
        """Times as long as a step took before, if this machine is slow."""
        times = self.step_ms / self.reference_ms if self.reference_ms else 1.0
        return times if times > SLOW else None

    @property
    def warning(self) -> str | None:
        """A sentence if this machine is slow."""
        if self.slowdown is None:
            return None
        return (
            f"slow machine: a step takes {self.step_ms:.1f} ms, {self.slowdown:.2f} times the "
            f"median of {self.runs} earlier runs on machines of its kind"
        )


def speed_steps(cfg: Config) -> int:
    """Steps that are timed before the clock starts."""
    if cfg.launch.speed_steps is not None:
        return cfg.launch.speed_steps
    return GPU_STEPS if cfg.launch.device == "cuda" else 0


def check_speed(
    cfg: Config, step: TrainStep, ranks: Ranks, active: tuple[str, ...], batch: Callable[[], Any]
) -> Speed | None:
    """Time some steps, compare and record; all ranks call it. The caller puts the weights back."""
    if (steps := speed_steps(cfg)) == 0:
        return None
    times = [_seconds_of(step, cfg, active, batch, ranks) for _ in range(steps)]
    step_ms = 1000 * statistics.median(times)
    if not ranks.is_first:
        return None
    key = {"machine": machine_kind(), "work": _work(cfg)}
    earlier = [e["step_ms"] for e in _history() if e["machine"] == key["machine"] and e["work"] == key["work"]]
    earlier = earlier[-REMEMBERED:]
    _record({**key, "step_ms": round(step_ms, 3)})
    return Speed(step_ms, statistics.median(earlier) if earlier else None, len(earlier))


def _seconds_of(step: TrainStep, cfg: Config, active: tuple[str, ...], batch: Callable[[], Any], ranks: Ranks) -> float:
    start = time.perf_counter()
    step(batch, 1.0, muon_momentum(cfg.optim, 0), active)
    if step.device.type == "cuda":
        torch.cuda.synchronize(step.device)
    ranks.barrier()
    return time.perf_counter() - start


def _work(cfg: Config) -> str:
    """Eight hex digits for what decides the time of a step."""
    launch = (cfg.launch.nproc, cfg.launch.nodes, cfg.launch.compile, cfg.launch.threads, torch.__version__)
    values = {k: v for k, v in identity(cfg).items() if k.startswith(WORK)}
    return hashlib.sha256(json.dumps([values, launch]).encode()).hexdigest()[:8]


def _history() -> list[dict[str, Any]]:
    try:
        lines = (runs_root() / "speeds.jsonl").read_text().splitlines()
    except OSError:
        return []
    entries = []
    for line in lines:
        try:
            entries.append(json.loads(line))
        except ValueError:  # cut off by a full disk
            continue
    return [e for e in entries if {"machine", "work", "step_ms"} <= e.keys()]


def _record(entry: dict[str, Any]) -> None:
    """One line in one write, so that runs that end at once do not mix theirs."""
    try:
        descriptor = os.open(runs_root() / "speeds.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(descriptor, (json.dumps(entry) + "\n").encode())
        finally:
            os.close(descriptor)
    except OSError:  # a missing history is not worth a run
        pass
