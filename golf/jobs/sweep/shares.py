"""What one job of a sweep gets of this machine: GPUs of its own, or a part of the CPU cores."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass

from golf.errors import GolfError
from golf.run.locks import Lock, try_lock
from golf.settings.config import Config
from golf.settings.hardware import cpu_cores, detect


@dataclass(frozen=True)
class Share:
    """`parts` are locked while a job has it, so that two sweeps on one machine do not give away anything twice."""

    parts: tuple[str, ...]
    threads: int  # of every rank
    gpus: tuple[str, ...] = ()  # as CUDA_VISIBLE_DEVICES names them

    def __str__(self) -> str:
        gpus = f"{len(self.gpus)} GPU{'s' * (len(self.gpus) > 1)}, " if self.gpus else ""
        return f"{gpus}{self.threads} CPU thread{'s' * (self.threads > 1)} a rank"

    def environment(self) -> dict[str, str]:
        """What a process that is to keep to this share has to be told."""
        threads = {"OMP_NUM_THREADS": str(self.threads)}
        return {**threads, "CUDA_VISIBLE_DEVICES": ",".join(self.gpus)} if self.gpus else threads


def shares(cfg: Config) -> list[Share]:
    """The equal shares that jobs like `cfg` divide this machine into. Raises `GolfError` if not even one fits."""
    return _gpu_shares(cfg) if cfg.launch.device == "cuda" else _cpu_shares(cfg)


def lock_share(cfg: Config) -> tuple[Share, list[Lock]] | None:
    """A share that nobody has at the moment, and the locks to release after it; None if all are taken."""
    for share in shares(cfg):
        with contextlib.ExitStack() as stack:
            locks = []
            for part in share.parts:
                if (lock := try_lock(f"{socket.gethostname()}-{part}")) is None:
                    break
                stack.callback(lock.release)
                locks.append(lock)
            else:
                stack.pop_all()
                return share, locks
    return None


def _gpu_shares(cfg: Config) -> list[Share]:
    each, gpus = cfg.launch.nproc, _visible_gpus()
    if len(gpus) < each:
        raise GolfError(f"launch.nproc={each} needs {each} GPUs, but there are {len(gpus)} here: lower it.")
    count = min(len(gpus) // each, cfg.launch.jobs or len(gpus))
    threads = cfg.launch.threads or max(1, cpu_cores() // (count * each))
    groups = (tuple(gpus[i * each : (i + 1) * each]) for i in range(count))
    return [Share(tuple(f"gpu{name.replace('/', '-')}" for name in group), threads, group) for group in groups]


def _cpu_shares(cfg: Config) -> list[Share]:
    """As many as have cores of their own; `launch.jobs` beyond the number of cores share them as they can."""
    cores, nproc = cpu_cores(), cfg.launch.nproc
    count = cfg.launch.jobs or max(1, cores // (cfg.launch.threads * nproc if cfg.launch.threads else cores))
    threads = cfg.launch.threads or max(1, cores // (count * nproc))
    if (each := threads * nproc) * count > cores:
        return [Share((f"job{i}",), threads) for i in range(count)]
    return [Share(tuple(_names("core", i * each, each)), threads) for i in range(count)]


def _names(what: str, first: int, count: int) -> Iterator[str]:
    return (f"{what}{i}" for i in range(first, first + count))


def _visible_gpus() -> list[str]:
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return [n.strip() for n in named.split(",")] if named else [str(i) for i in range(detect().gpus)]
