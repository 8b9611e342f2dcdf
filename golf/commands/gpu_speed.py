"""Parts `scoring` and `profile` of `golf gpu-check`: operations a second of low-rank scoring, and kernels of a step."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from golf.commands.gpu_part import Answer, Order, Task
from golf.commands.gpu_steps import UNTIMED_STEPS, stepping, timed_step
from golf.lab.plan.flops import challenge_tokens
from golf.lab.plan.gpu_scoring import LORA_FLOPS, Rates, document_lengths, slower_scores, ttt_only_seconds
from golf.settings.composition import compose
from golf.settings.config import Config, ttt_recipe
from golf.training.data.dataset import Dataset
from golf.training.data.documents import BOS_ID
from golf.training.loop.main import set_up_torch
from golf.training.model.build import build_model, shapeless_model
from golf.training.ranks import Ranks
from golf.training.scoring.scorer import Scorer

SCORED = "records/2026-04-27_caseops_lqer_9hp"
# Without phases, whose steps take other kernels and a tenth of the time.
LOW_RANK = ("eval.ttt.lora_phases.count=0", "launch.compile=off")
WORK = {"cuda": 1.2e15, "cpu": 1e10}  # operations of the timed score: 12 s with flash attention 3 on an H100
FEWEST_DOCUMENTS = 4
PROFILED_STEPS = 3
KERNELS_LISTED = 25
# Name of a kernel of Inductor and what the compiler counts for it, in the text of a graph.
KERNEL_GB = re.compile(r"async_compile\.triton\('(\w+)'.*?'kernel_num_gb': ([\d.e-]+)", re.DOTALL)


def scoring_tasks(order: Order) -> Iterator[Task]:
    """Yield the row of the part `scoring`."""
    yield f"low-rank factors, {SCORED.rpartition('/')[2]}", lambda: low_rank_speed(order)


def low_rank_speed(order: Order) -> Answer:
    """Score documents whose lengths are those of the validation split, on fresh weights; return operations a second."""
    cfg, device = compose([f"experiment={SCORED}", *order.scale, *LOW_RANK]), torch.device(order.device)
    # A scale without test-time training leaves nothing to measure.
    if cfg.eval.ttt.method != "lora":
        cfg = compose([f"experiment={SCORED}", *order.scale, "eval=ttt_phased", *LOW_RANK])
    lengths = document_lengths(challenge_tokens(cfg))
    model, work = shapeless_model(cfg), WORK[device.type]
    share = work / ttt_only_seconds(cfg, model, Rates(1.0, 1.0, 1.0), lengths)
    every = int(min(max(1.0, 1 / share), len(lengths) / FEWEST_DOCUMENTS))
    sample = lengths[every // 2 :: every]
    operations = ttt_only_seconds(cfg, model, Rates(1.0, 1.0, 1.0), sample)
    set_up_torch(cfg)
    weights = build_model(cfg).to(device).state_dict()
    ranks = Ranks(device=device)
    # The first document loads kernels and fills caches.
    for documents in (sample[:1], sample):
        scorer = Scorer(cfg, synthetic_documents(cfg, documents), ranks)
        start = time.perf_counter()
        scorer.test_time_trained(weights)
        seconds = time.perf_counter() - start
    planned = LORA_FLOPS / slower_scores(cfg.model.attention, ttt_recipe(cfg).seq_len) / 1e12
    rate = operations / seconds / 1e12
    return True, (
        f"{rate:.1f} TFLOP/s with model.attention={cfg.model.attention}, where the plan assumes {planned:.0f}: "
        f"{len(sample):,} documents in {seconds:.1f} s"
    )


def synthetic_documents(cfg: Config, lengths: np.ndarray) -> Dataset:
    """Return a data set whose validation split has documents of `lengths` targets, of random tokens."""
    ends = np.cumsum(lengths)
    tokens = np.random.default_rng(0).integers(BOS_ID + 1, cfg.model.vocab_size, int(ends[-1]) + 1).astype(np.uint16)
    tokens[[0, *ends[:-1]]] = BOS_ID
    return Dataset([], [], tokens, np.ones(tokens.size - 1, np.int16), "")


def profile_tasks(order: Order) -> Iterator[Task]:
    """Yield the row of the part `profile`."""
    yield "kernels of a step", lambda: profile_answer(order)


def profile_answer(order: Order) -> Answer:
    """Return the sums over the kernels of a step, and a line for each of those that take most time."""
    kernels, gigabytes = profile(order)
    ranked = sorted(kernels.items(), key=lambda item: -item[1][1])
    known = sum(gigabytes.get(name, 0.0) * launches for name, (launches, _) in ranked)
    launches, ms = (sum(own[i] for own in kernels.values()) for i in (0, 1))
    lines = [f"{ms:.1f} ms in {launches:,.0f} launches; the compiler counts {known:.2f} GB in its own kernels"]
    for name, (times, own_ms) in ranked[:KERNELS_LISTED]:
        gb = times * gigabytes.get(name, 0.0)
        moved = f", {gb:.3f} GB, {gb / own_ms:.2f} TB/s" if gb else ""
        lines.append(f"{own_ms:.2f} ms in {times:.0f} launches{moved}: {name[:100]}")
    return bool(ranked), "\n".join(lines)


def profile(order: Order) -> tuple[dict[str, tuple[float, float]], dict[str, float]]:
    """Return launches and milliseconds a step of each kernel, and the gigabytes of those that Inductor counts."""
    from torch._inductor import config
    from torch.profiler import ProfilerActivity

    # It writes the bytes of a kernel into its text, and changes nothing else of it.
    config.benchmark_kernel = True
    cfg = compose([*order.overrides, "launch.compile=full"])
    state, batch = stepping(cfg, torch.device(order.device))
    for _ in range(UNTIMED_STEPS):
        timed_step(cfg, state, batch)
    is_gpu = order.device == "cuda"
    with torch.profiler.profile(activities=[ProfilerActivity.CUDA if is_gpu else ProfilerActivity.CPU]) as profiler:
        for _ in range(PROFILED_STEPS):
            timed_step(cfg, state, batch)
    kernels = {
        event.key: (event.count / PROFILED_STEPS, _microseconds(event, is_gpu) / 1000 / PROFILED_STEPS)
        for event in profiler.key_averages()
    }
    return {name: own for name, own in kernels.items() if own[1]}, kernel_gigabytes(compiled_texts())


def _microseconds(event: Any, is_gpu: bool) -> float:
    return float(event.self_device_time_total if is_gpu else event.self_cpu_time_total)


def compiled_texts() -> list[str]:
    """Return the text of every graph that Inductor has compiled in this process."""
    from torch._inductor.codecache import PyCodeCache

    files = {module.__file__ for module in PyCodeCache.modules if module.__file__}
    return [Path(file).read_text(encoding="utf-8") for file in sorted(files)]


def kernel_gigabytes(texts: list[str]) -> dict[str, float]:
    """Return the gigabytes that a launch of each kernel in Triton reads and writes, as Inductor counts them."""
    return {name: float(gb) for text in texts for name, gb in KERNEL_GB.findall(text)}
