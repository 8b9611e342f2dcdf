"""Text of a plan: two lines before a run, a table for `golf plan`. Digits are cut to what the interval allows."""

from __future__ import annotations

import math
from typing import Any

from golf.artifact.quant.fitting import FINEST
from golf.errors import MissingError
from golf.lab.plan.artifact_size import Interval
from golf.lab.plan.gpu_lines import machine_dict, machine_lines
from golf.lab.plan.plan import Plan, make_plan
from golf.lab.plan.seconds import CompileTime
from golf.lab.report.table import Column, Table
from golf.settings.config import Config
from golf.training.services import SERVICES, code_bytes
from golf.words import duration

LONG_SECONDS = 7200  # from here on times are in hours
LOPSIDED = 1.25  # ratio of an interval's sides up to which one half-width stands for both


def lines_before_run(cfg: Config) -> list[str]:
    """Return the plan's lines that a run prints before it starts. Raises `GolfError` if no script can be made of it."""
    if SERVICES.code_bytes is None:
        return ["plan: none, because the bytes of code are unknown without golf/submission"]
    # The run counts these bytes at its end, where nothing could be mended any more.
    code_bytes(cfg)
    # A failing prediction must not stop a run.
    try:
        return short_lines(make_plan(cfg))
    except MissingError:
        # The run ends with this very sentence.
        return []
    except Exception as error:
        return [f"plan: none, it failed ({type(error).__name__}: {error})"]


def short_lines(plan: Plan) -> list[str]:
    """Return lines on parameters and bytes, on work and time, and without a GPU on scoring and memory."""
    of = f"{plan.cap_bytes:,} bytes{pruning(plan)}"
    used = f"{rounded(plan.artifact.bytes)} artifact + {code_size(plan)} code of {of}"
    lines = [f"plan: {plan.params:,} parameters; {used}{_warning(plan)}", f"plan: {work(plan)}; {training(plan)}"]
    return lines if plan.gpu else [*lines, f"plan: {scoring(plan)}; memory {memory(plan)}"]


def _warning(plan: Plan) -> str:
    if plan.headroom.high < 0:
        return ", OVER THE CAP"
    return ", which may be over the cap" if plan.headroom.low < 0 else ""


def pruning(plan: Plan) -> str:
    """Return what fills the cap, in words: coarser steps, or codes that are expected to be zeroed; empty if nothing."""
    if plan.step_factor is not None:
        low, expected, high = (f"{factor:.2f}" for factor in plan.step_factor)
        finest = 2.0**FINEST
        unfilled = f"; {finest:g} is the finest, so the cap is not filled" * (plan.step_factor.expected <= finest)
        return f", with steps about {expected} ({low} to {high}) times as large{unfilled}"
    if plan.pruned is None or plan.pruned.high == 0:
        return ""
    low, expected, high = (f"{share:.0%}" for share in plan.pruned)
    return f", pruned to fit: about {expected} ({low} to {high}) of the codes that may go"


def code_size(plan: Plan) -> str:
    """Return the bytes of the script, such as `15,466`; with ≈ before an estimate."""
    return f"{'≈ ' if plan.code_is_estimate else ''}{plan.code_bytes:,}"


def work(plan: Plan) -> str:
    """Return the training operations of a token and a step, in words."""
    step = plan.flops.total * plan.batch_tokens / 1e12
    unknown = f"; {plan.flops.unknown}" if plan.flops.unknown else ""
    return f"{plan.flops.total / 1e6:.4g} MFLOP a token, {step:.3g} TFLOP a step{unknown}"


def training(plan: Plan) -> str:
    """Return steps and seconds in words, as far as they are known."""
    if plan.steps is None:
        return f"steps in {plan.train_seconds:g} s unknown: {plan.step_time.basis}"
    steps = plan_range(plan.steps, "steps")
    if plan.step_time.step_ms is None or plan.seconds is None:
        return f"{steps}, seconds unknown: {plan.step_time.basis}"
    pace = plan_range(plan.step_time.step_ms, "ms")
    return f"{steps} of {pace}, {plan_range(plan.seconds, 's')} ({plan.step_time.basis})"


def compiling(plan: Plan, seconds: CompileTime) -> str:
    """Return the seconds before the clock, with their price on a rented machine, in words."""
    text = f"{plan_range(Interval(seconds.low, seconds.low, seconds.high), 's')} before the clock"
    if plan.gpu and plan.gpu.usd_per_hour:
        low, high = (f"{s / 3600 * plan.gpu.usd_per_hour:.2f}" for s in seconds[:2])
        text += f", {low} to {high} dollars"
    return f"{text} ({seconds.basis})"


def scoring(plan: Plan) -> str:
    """Return the seconds of the artifact's longest score by windows and of test-time training, in words."""
    score = plan.score
    how = f"stride {score.stride}" if score.stride else "flat score"
    over = "" if score.tokens is None else f" over {score.tokens / 1e6:.3g} M tokens"
    if score.seconds is None:
        return f"{how}{over}: seconds unknown ({score.basis})"
    ttt = "" if score.ttt_seconds is None else f", test-time training {duration(score.ttt_seconds)}"
    too_long = score.seconds + (score.ttt_seconds or 0.0) > plan.eval_seconds > 0
    limit = f", OVER the {plan.eval_seconds:g} s of budget.eval_seconds" if too_long else ""
    return f"{how}{over}: {duration(score.seconds)}{ttt}{limit} ({score.basis})"


def memory(plan: Plan) -> str:
    """Return the most memory on a CPU in words."""
    return f"up to about {float(f'{plan.memory_bytes / 1e9:.2g}'):g} GB"


def plan_range(value: Interval, unit: str) -> str:
    """Return a range such as `242 steps` or `230 to 260 steps`."""
    if unit == "s" and max(value) >= LONG_SECONDS:
        return plan_range(Interval(*(seconds / 3600 for seconds in value)), "hours")
    # Seconds pair many steps with short ones, so either end can be the smaller one.
    low, high = (f"{v:,.0f}" if v >= 100 else f"{v:.3g}" for v in sorted((value.low, value.high)))
    return f"{low} {unit}" if low == high else f"{low} to {high} {unit}"


def rounded(value: Interval) -> str:
    """Return a value such as `366,000 ± 8,000`, or `960,000 (850,000 to 980,000)` if its interval is lopsided.

    The shorter side has two digits, and no number has finer ones.
    """
    below, above = value.expected - value.low, value.high - value.expected
    if max(below, above) < 1:
        return f"{value.expected:,.0f}"
    # Digits below the uncertainty would promise a precision that is not there.
    unit = 10 ** max(math.floor(math.log10(max(min(below, above), 1))) - 1, 0)
    if max(below, above) <= LOPSIDED * min(below, above):
        return f"{_to(value.expected, unit)} ± {math.ceil(max(below, above) / unit) * unit:,}"
    # One half-width for both sides would put values into the interval that the prediction excludes.
    return f"{_to(value.expected, unit)} ({_to(value.low, unit)} to {_to(value.high, unit)})"


def _to(value: float, unit: int) -> str:
    return f"{round(value / unit) * unit:,}"


def plan_table(plan: Plan, title: str) -> Table:
    """Return the table of parameters and bytes by class, with a last row for the whole model."""
    columns = (
        Column("class", "class", is_text=True),
        Column("parameters", "parameters", "{:,}".format, spare=1),
        Column("formats", "formats", is_text=True, spare=3),
        Column("raw_bytes", "raw bytes", "{:,}".format, spare=4),
        Column("bytes", "expected bytes", "{:,.0f}".format),
        Column("bits", "bits a weight", "{:.2f}".format, spare=2),
    )
    rows: list[dict[str, Any]] = [
        {
            "class": row.name,
            "parameters": row.params,
            "formats": ", ".join(row.formats),
            "raw_bytes": row.raw_bits // 8,
            "bytes": row.stored_bytes,
            "bits": 8 * row.stored_bytes / row.params,
        }
        for row in plan.classes
        if row.params
    ]
    raw_bytes = sum(row.raw_bits for row in plan.classes) // 8
    whole = {"parameters": plan.params, "raw_bytes": raw_bytes, "bytes": plan.artifact.bytes.expected}
    return Table(columns, [*rows, {"class": "all", "formats": "", **whole, "bits": ""}], title, totals=1)


def plan_lines(cfg: Config, plan: Plan) -> list[str]:
    """Return the lines below the table."""
    excess = f"{plan.artifact.excess_share:+.2%} from Gaussian weights"
    return [
        f"artifact   {rounded(plan.artifact.bytes)} bytes ({excess}){pruning(plan)}",
        f"code       {code_size(plan)} bytes, wrapped",
        f"headroom   {rounded(plan.headroom)} of {plan.cap_bytes:,} bytes{_warning(plan)}",
        f"work       {work(plan)} (matrices {plan.flops.matmul / 1e6:.4g}, attention {plan.flops.attention / 1e6:.4g})",
        f"time       {training(plan)}",
        *([f"compiling  {compiling(plan, plan.compiling)}"] if plan.compiling else []),
        # The machine's line has seconds by a formula where no finished run tells them.
        *([f"scoring    {scoring(plan)}"] if plan.score.seconds or not plan.gpu else []),
        *([] if plan.gpu else [f"memory     {memory(plan)}"]),
        *(machine_lines(cfg, plan.gpu) if plan.gpu else ()),
    ]


def as_dict(plan: Plan) -> dict[str, Any]:
    """Return the plan for programs, with units in the keys; intervals are [low, expected, high]."""
    return {
        "params": plan.params,
        "classes": [vars(row) | {"formats": list(row.formats)} for row in plan.classes],
        "artifact_bytes": list(plan.artifact.bytes),
        "excess_share": plan.artifact.excess_share,
        "code_bytes": plan.code_bytes,
        "code_is_estimate": plan.code_is_estimate,
        "cap_bytes": plan.cap_bytes,
        "pruned_share": plan.pruned and list(plan.pruned),
        "step_factor": plan.step_factor and list(plan.step_factor),
        "headroom_bytes": list(plan.headroom),
        "flops_per_token": plan.flops.total,
        "flops_per_token_attention": plan.flops.attention,
        "flops_unknown": plan.flops.unknown,
        "tokens_per_step": plan.batch_tokens,
        "step_ms": plan.step_time.step_ms and list(plan.step_time.step_ms),
        "steps": plan.steps and list(plan.steps),
        "train_seconds": plan.seconds and list(plan.seconds),
        "speed_basis": plan.step_time.basis,
        "compile_seconds": plan.compiling and list(plan.compiling[:2]),
        "compile_basis": plan.compiling and plan.compiling.basis,
        "score_stride": plan.score.stride,
        "score_tokens": plan.score.tokens,
        "score_seconds": plan.score.seconds,
        "ttt_seconds": plan.score.ttt_seconds,
        "memory_bytes": plan.memory_bytes,
        **(machine_dict(plan.gpu) if plan.gpu else {}),
    }
