"""Text of a plan for a GPU machine: the lines that follow those of bytes and steps."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from golf.lab.plan.gpu_plan import BESIDE_SECONDS, JOB_SECONDS, GPUPlan
from golf.lab.plan.gpu_scoring import hint_seconds, ttt_range
from golf.lab.plan.step_model import QUANTILES
from golf.settings.config import Config, training_seconds

# The package index of PyTorch; PyPI's package of that name is empty.
FLASH3_INSTALL = "pip install flash-attn-3 --index-url https://download.pytorch.org/whl/cu130"


def machine_lines(cfg: Config, plan: GPUPlan) -> list[str]:
    """Return the lines of step time, memory, scoring and dollars on the plan's machine."""
    lines = [f"machine    {pace(plan)}", *attention(cfg, plan)]
    lines += [f"memory     {memory(plan)}", f"sliding    {sliding(cfg, plan)}"]
    if plan.ttt_seconds is not None:
        lines.append(f"test time  {ttt(cfg, plan, plan.ttt_seconds)}")
    if plan.usd_per_hour is not None:
        lines.append(f"dollars    {dollars(cfg, plan)}")
    return lines


def pace(plan: GPUPlan) -> str:
    """Return the step time on the machine, in words."""
    step = plan.step_time.step_ms
    assert step is not None
    start = f"{plan.machine.title}: {step.expected:.1f} ms a step"
    if plan.machine.kind.is_rough or not plan.step_time.basis.endswith("within"):
        return f"{start}, {step.low:.1f} to {step.high:.1f} ({plan.step_time.basis})"
    four, ten = (step.expected * QUANTILES[share] / QUANTILES[0.5] for share in (0.75, 0.90))
    alone = "" if plan.machine.gpus > 1 else "; single H100s vary most, so time 100 steps on yours"
    return f"{start}; one machine in four takes over {four:.0f}, one in ten over {ten:.0f}{alone}"


def attention(cfg: Config, plan: GPUPlan) -> list[str]:
    """Return the lines of what each kernel of attention would make of the step and of the long scores; none for one.

    The last one says what to install for the fastest.
    """
    step, seconds, own = plan.step_time.step_ms, plan.eval_seconds(cfg), cfg.model.attention
    assert step is not None
    lines = []
    for name, kernel in plan.kernels.items():
        scores = f", long scores {seconds * kernel.scores:,.0f} s" if seconds else ""
        what = {"fa3": "a package", "varlen": "torch's own for documents", "sdpa": "torch's own"}[name]
        what += " under a dense mask, roughly" * (name == "sdpa" and cfg.model.within_documents)
        planned = "; planned" if name == own else ""
        lines.append(f"{name:7}{step.expected * kernel.step:.1f} ms a step{scores} ({what}{planned})")
    if "fa3" in plan.kernels and own != "fa3":
        lines.append(f"to have fa3, install it there: {FLASH3_INSTALL}; to plan with it: model.attention=fa3")
    return [f"{'' if i else 'attention':11}{line}" for i, line in enumerate(lines)]


def memory(plan: GPUPlan) -> str:
    """Return the peak memory of a GPU against what it has, with a warning if it may not fit."""
    peak, total = plan.peak_mib, plan.machine.kind.memory_mib
    text = f"{peak:,.0f} MiB ({peak / 1024:.1f} GiB) of {total:,} at the peak of a compiled step on each GPU"
    if peak > total:
        return f"{text}: IT DOES NOT FIT. Raise data.micro_batches or lower data.train_batch_tokens"
    if plan.memory_left_mib < 0:
        return f"{text}: MAY NOT FIT, 1 run in 20 takes 1.25 times as much. Raise data.micro_batches"
    return text


def sliding(cfg: Config, plan: GPUPlan) -> str:
    """Return the seconds of a sliding score on the machine against the budget, in words."""
    seconds, budget = plan.sliding_seconds, cfg.budget.eval_seconds
    verb = "takes" if cfg.eval.stride else "would take"
    text = f"stride {plan.stride} {verb} about {seconds:,.0f} s there (public sliding scores; ± 30 %)"
    if cfg.eval.stride and budget and seconds > budget:
        return f"{text}: OVER the {budget:g} s of budget.eval_seconds. Raise eval.stride, or that budget on fewer GPUs"
    return text


def ttt(cfg: Config, plan: GPUPlan, seconds: float) -> str:
    """Return the seconds of test-time training on the machine, and of all scores against the budget, in words."""
    total, budget = plan.eval_seconds(cfg), cfg.budget.eval_seconds
    low, high = ttt_range(cfg, seconds)
    hints = f", {hint_seconds(cfg):.0f} of them for hints" if cfg.eval.tilt.method != "off" else ""
    text = f"{cfg.eval.ttt.method} takes about {seconds:,.0f} s there{hints} (public runs: {low:,.0f} to {high:,.0f})"
    if budget and total > budget:
        return f"{text}: all long scores together {total:,.0f} s, OVER the {budget:g} s of budget.eval_seconds"
    return text


def dollars(cfg: Config, plan: GPUPlan) -> str:
    """Return what training and scoring cost, and a whole job, in words."""
    assert plan.usd_per_hour is not None
    busy = training_seconds(cfg) + plan.eval_seconds(cfg)
    whole = max(JOB_SECONDS, busy + BESIDE_SECONDS)
    return (
        f"{busy / 3600 * plan.usd_per_hour:.2f} for training and scoring, {whole / 3600 * plan.usd_per_hour:.2f} for "
        f"a job of {whole / 60:.0f} minutes with loading, compiling and packing, at {plan.usd_per_hour:g} an hour"
    )


def machine_dict(plan: GPUPlan) -> dict[str, Any]:
    """Return the plan of the machine for programs, with units in the keys."""
    return {
        "machine": plan.machine.title,
        "peak_mib": plan.peak_mib,
        "memory_mib": plan.machine.kind.memory_mib,
        "fits": plan.memory_left_mib >= 0,
        "machine_scoring_seconds": plan.sliding_seconds,
        "machine_ttt_seconds": plan.ttt_seconds,
        "kernels": {name: asdict(kernel) for name, kernel in plan.kernels.items()},
        "usd_per_hour": plan.usd_per_hour,
    }
