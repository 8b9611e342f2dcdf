"""The plan of a run on a GPU machine that need not be at hand: step time, memory, seconds of scoring, dollars."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from golf.lab.plan.artifact_size import Interval
from golf.lab.plan.flops import layer_order, pass_flops
from golf.lab.plan.gpu_scoring import sliding_seconds, slower_scores, ttt_seconds
from golf.lab.plan.history import FinishedRun
from golf.lab.plan.machines import Machine
from golf.lab.plan.seconds import STRIDE, StepTime
from golf.lab.plan.step_model import (
    MEMORY_MARGIN,
    QUANTILES,
    Phases,
    Work,
    attended_tokens,
    by_kernel,
    peak_mib,
    step_ms,
)
from golf.run.progress import Progress
from golf.settings.config import (
    Config,
    eval_seq_len,
    mean_batch_tokens,
    mean_seq_len,
    micro_batch_tokens,
    mlp_hidden,
    techniques,
    ttt_recipe,
    world_size,
)
from golf.tables import grouped
from golf.training.model.attention import CausalSelfAttention
from golf.training.model.build import shapeless_model
from golf.training.model.gpt import GPT
from golf.training.model.layers import in_order
from golf.words import counted

PHASE_STEPS = 200  # points of a run at which the switches are asked
JOB_SECONDS = 25 * 60  # of a record run with loading, compiling, quantizing and scoring; docs/cluster.md
BESIDE_SECONDS = 5 * 60  # of these, what is neither training nor scoring in a record with ten minutes of each


@dataclass(frozen=True)
class KernelPlan:
    """Ratios of times with another kernel of attention to those with the plan's own."""

    step: float  # ratio of the step times
    scores: float  # ratio of the seconds of scores


@dataclass(frozen=True)
class GPUPlan:
    """Time, memory and dollars of a run on `machine`."""

    machine: Machine
    step_time: StepTime
    formula_ms: float  # step time of a machine that is not slow, before finished runs correct it
    peak_mib: float  # allocated on each GPU
    stride: int  # of the sliding score; 64 for a configuration without one
    sliding_seconds: float
    ttt_seconds: float | None  # of test-time training; None without
    usd_per_hour: float | None
    kernels: dict[str, KernelPlan]  # by `model.attention`, the fastest first; empty where there is one alone

    @property
    def memory_left_mib(self) -> float:
        """Return the MiB left on a GPU if the step takes as much more than predicted as 1 run in 20 does."""
        return self.machine.kind.memory_mib - MEMORY_MARGIN * self.peak_mib

    def eval_seconds(self, cfg: Config) -> float:
        """Return the seconds of all long scores that `cfg` asks for."""
        return (self.sliding_seconds if cfg.eval.stride else 0.0) + (self.ttt_seconds or 0.0)


def gpu_plan(
    cfg: Config, model: GPT, machine: Machine, history: Sequence[FinishedRun], usd_per_hour: float | None = None
) -> GPUPlan:
    """Plan `cfg`, whose `model` may be on the meta device, on `machine`. Finished runs there scale the step time."""
    phases = phases_of(cfg, model)
    ms = step_ms(phases)
    # Public scores were timed on H100s; another kind is slower by its slowdown in training.
    slowdown = machine.kind.slowdown
    stride = cfg.eval.stride or min(STRIDE, eval_seq_len(cfg))
    return GPUPlan(
        machine=machine,
        step_time=_step_time(cfg, machine, ms, history),
        formula_ms=ms,
        peak_mib=max(peak_mib(work) for _, work in phases),
        stride=stride,
        sliding_seconds=slowdown * sliding_seconds(cfg, model, stride),
        ttt_seconds=slowdown * ttt_seconds(cfg, model) if cfg.eval.ttt.method != "off" else None,
        usd_per_hour=usd_per_hour,
        kernels=_kernels(cfg, phases, hopper=machine.hardware().hopper),
    )


def _kernels(cfg: Config, phases: Phases, *, hopper: bool) -> dict[str, KernelPlan]:
    names = ["fa3"] * hopper + ["varlen"] * cfg.model.within_documents + ["sdpa"]
    if len(names) == 1:
        return {}
    # The lengths of rows are not those of a work whose kernel reads under a mask.
    plain = [(share, replace(work, seq_len=_attended(cfg), masked_keys=0)) for share, work in phases]
    window, piece = ttt_recipe(cfg).seq_len, _piece_tokens(cfg)
    own_ms, own_scores = step_ms(phases), slower_scores(cfg.model.attention, window)
    return {
        name: KernelPlan(
            step_ms([(share, by_kernel(work, name, piece)) for share, work in plain]) / own_ms,
            slower_scores(name, window) / own_scores,
        )
        for name in names
    }


def _attended(cfg: Config) -> int:
    return attended_tokens(mean_seq_len(cfg), cfg.model.within_documents)


def _piece_tokens(cfg: Config) -> int:
    return mean_seq_len(cfg) if cfg.model.within_documents else 0


def unplanned(cfg: Config, machine: Machine | None = None) -> str:
    """Return why the formulas are not for `cfg`, with all GPUs of `machine` if that is given; empty if they are."""
    known = "step time and memory are known for compiled steps in bf16 on GPUs only"
    for key, value, is_known in (
        ("launch.device", cfg.launch.device, cfg.launch.device == "cuda"),
        ("launch.compile", cfg.launch.compile, cfg.launch.compile != "off"),
        ("model.compute_dtype", cfg.model.compute_dtype, cfg.model.compute_dtype == "bf16"),
    ):
        if not is_known:
            return f"{known}, not with {key}={value}: leave it out, or plan without --on"
    if machine is not None and world_size(cfg) != machine.gpus:
        return (
            f"the configuration has {world_size(cfg)} ranks, and {machine.title} is planned with one on each GPU: "
            "leave launch.nproc and launch.nodes out, or name a machine of that size"
        )
    return ""


def phases_of(cfg: Config, model: GPT) -> Phases:
    """Return (share of the training time, work) for every order of layers that the run goes through."""
    # Techniques switch parts of the model on by the time that has passed, so the run is sampled at equal distances in
    # time.
    samples = (Progress(i * cfg.schedule.iterations // PHASE_STEPS, i / PHASE_STEPS, 1.0) for i in range(PHASE_STEPS))
    active = [tuple(name for t in techniques(cfg) for name in t.names_on(progress)) for progress in samples]
    orders = grouped((tuple(layer_order(model, names)), names) for names in active)
    return [(len(alike) / PHASE_STEPS, _work(cfg, model, alike[0])) for alike in orders.values()]


def _work(cfg: Config, model: GPT, active: tuple[str, ...]) -> Work:
    order, step = layer_order(model, active), pass_flops(cfg, model, active)
    # The formula charges attention in every layer. A layer with something else in its place takes less or more.
    attending = sum(hasattr(model.blocks[layer], "attn") for layer in order)
    excess = step.attention(mean_seq_len(cfg)) - 6.0 * mean_seq_len(cfg) * cfg.model.model_dim * attending
    hooks = {i: _output_hooks(model, i) for i in set(order)}
    with_xsa = sum("exclude_own_value" in hooks[i] for i in order)
    work = Work(
        gpus=world_size(cfg),
        batch_tokens=mean_batch_tokens(cfg),
        micro_tokens=micro_batch_tokens(cfg),
        seq_len=_attended(cfg),
        layers=len(order),
        dim=cfg.model.model_dim,
        mlp_hidden=mlp_hidden(cfg.model),
        vocab=cfg.model.vocab_size,
        params=sum(p.numel() for p in model.parameters()),
        matmul_params=(step.matmul + excess) / 6,
        xsa_share=with_xsa / len(order),
    )
    return by_kernel(work, cfg.model.attention, _piece_tokens(cfg))


def _output_hooks(model: GPT, block: int) -> list[str]:
    """Return the names of what edits the output of a block's attention, none if it has no attention."""
    attn = getattr(model.blocks[block], "attn", None)
    if not isinstance(attn, CausalSelfAttention):
        return []
    return [str(getattr(hook, "__name__", "")) for hook in in_order(attn.output_hooks)]


def _step_time(cfg: Config, machine: Machine, ms: float, history: Sequence[FinishedRun]) -> StepTime:
    """Return the formula's `ms` with an interval, or scaled by the runs that have finished on such a machine."""
    ratios = []
    for run in history:
        if run.machine == machine.title and run.result.step_ms and not unplanned(run.config):
            ratios.append(run.result.step_ms / step_ms(phases_of(run.config, shapeless_model(run.config))))
    if ratios:
        # Runs on the very machine correct what the formula gets wrong there, so their extremes replace its interval.
        scaled = Interval(*(ms * v for v in (min(ratios), statistics.median(ratios), max(ratios))))
        return StepTime(scaled, f"formula, scaled by {counted(len(ratios), 'finished run')} there")
    if machine.kind.is_rough:
        (low, high), middle = machine.kind.spread, machine.kind.slowdown
        basis = f"rough: {machine.kind.runs} public runs took {low:g} to {high:g} times as long as H100s"
        return StepTime(Interval(ms * low, ms * middle, ms * high), basis)
    values = (QUANTILES[0.10], QUANTILES[0.50], QUANTILES[0.90])
    return StepTime(Interval(*(ms * v for v in values)), "formula from public runs, 80 % of them within")
