"""The plan of a run: parameters, bytes, operations, steps and headroom, predicted before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from golf.challenge import RECORD_STEPS
from golf.errors import GolfError
from golf.lab.plan.artifact_size import ArtifactSize, Interval, artifact_size
from golf.lab.plan.cap_filling import filled, fitted
from golf.lab.plan.flops import FlopsPerToken, flops_per_token
from golf.lab.plan.gpu_plan import GPUPlan, gpu_plan, unplanned
from golf.lab.plan.history import FinishedRun, finished_runs
from golf.lab.plan.machines import Machine, machine_like
from golf.lab.plan.memory import cpu_bytes
from golf.lab.plan.seconds import (
    CompileTime,
    ScoreTime,
    StepTime,
    compile_time,
    expected_step_time,
    score_time,
    steps_within_budget,
)
from golf.lab.plan.tensors import StoredTensors, stored_tensors
from golf.run.environment import machine_kind
from golf.run.folder import runs_root
from golf.settings.config import Config, mean_batch_tokens
from golf.training.model.build import shapeless_model
from golf.training.services import code_bytes

STEPS_LOG_SD = 0.5  # standard deviation of log steps if no finished run tells the time of a step
CLASSES = ("embed", "attn", "mlp", "other", "control")


@dataclass(frozen=True)
class ClassPlan:
    """Tensors of one class."""

    name: str
    params: int
    formats: tuple[str, ...]
    raw_bits: int  # before compression
    stored_bytes: float  # expected after compression


@dataclass(frozen=True)
class Plan:
    """The prediction for one run."""

    params: int
    classes: tuple[ClassPlan, ...]
    artifact: ArtifactSize
    code_bytes: int
    code_is_estimate: bool  # the script itself was not made
    cap_bytes: int
    flops: FlopsPerToken
    batch_tokens: int
    step_time: StepTime
    compiling: CompileTime | None  # None without a compiler
    steps: Interval | None  # None if the clock ends the run and the time of a step is unknown
    train_seconds: float  # budget; 0 without a clock
    score: ScoreTime
    eval_seconds: float  # budget of the scores; 0 without one
    memory_bytes: float  # about the most of a run on a CPU
    pruned: Interval | None  # share of the prunable codes; None without quant.prune.to_fit
    step_factor: Interval | None  # None without quant.fit=cap
    gpu: GPUPlan | None  # None on a CPU and on GPUs that golf does not know

    @property
    def headroom(self) -> Interval:
        """Return the bytes left under the cap; negative if the artifact is over it."""
        left = self.cap_bytes - self.code_bytes
        low, expected, high = self.artifact.bytes
        return Interval(left - high, left - expected, left - low)

    @property
    def seconds(self) -> Interval | None:
        """Return the seconds of training; None if unknown."""
        if self.steps is None or self.step_time.step_ms is None:
            return None
        # Many steps go with short ones: both ends come from the same speed.
        return Interval(*(n * ms / 1000 for n, ms in zip(reversed(self.steps), self.step_time.step_ms, strict=True)))


def make_plan(
    cfg: Config,
    history: Sequence[FinishedRun] | None = None,
    *,
    code: int | None = None,
    machine: Machine | None = None,
    usd_per_hour: float | None = None,
    step_time: StepTime | None = None,
) -> Plan:
    """Plan `cfg` with the speed of finished runs; by default those under the runs root.

    `code` gives the bytes of the script if they are known already. Otherwise the script is made, which takes seconds
    once; the run that follows finds its size in the cache. `machine` is a GPU machine in place of this one, at
    `usd_per_hour`. `step_time` is known already, or follows from finished runs.
    """
    code = code_bytes(cfg) if code is None else code
    history = finished_runs(runs_root()) if history is None else history
    # Shapes, tensors and operations follow from the configuration alone.
    model = shapeless_model(cfg)
    tensors = stored_tensors(cfg, model.scored_weights())
    flops = flops_per_token(cfg, model)
    batch = mean_batch_tokens(cfg)
    # The clock ends a run, so the time of a step decides how many steps it has.
    reason = unplanned(cfg, machine)
    if machine and reason:
        raise GolfError(f"{reason}.")
    machine = machine or (None if reason else machine_like(machine_kind()))
    gpu = gpu_plan(cfg, model, machine, history, usd_per_hour) if machine else None
    title = machine.title if machine else machine_kind()
    if step_time is None:
        step_time = gpu.step_time if gpu else expected_step_time(cfg, flops.total * batch, title, history)
    steps = steps_within_budget(cfg, step_time.step_ms)
    # Without a known time of a step, the scale's share of a record run's steps is the best guess.
    expected_steps = round(steps.expected) if steps else max(1, round(RECORD_STEPS * cfg.scale.step_ratio))

    def predicted_size(cfg: Config) -> ArtifactSize:
        trained, unsure = min(expected_steps, cfg.schedule.iterations), 0.0 if steps else STEPS_LOG_SD
        return artifact_size(cfg, tensors, trained, steps_log_sd=unsure)

    # The bytes depend on the steps, since weights grow with training. Coarser steps and pruning then fill the cap.
    pruned, step_factor = None, None
    if cfg.quant.fit == "cap":
        size, step_factor = filled(cfg, tensors, code, predicted_size)
    else:
        size = predicted_size(cfg)
    if cfg.quant.prune.to_fit:
        size, pruned = fitted(cfg, tensors, size, code)
    return Plan(
        params=sum(tensor.numel for tensor in tensors),
        classes=tuple(_class_plan(name, tensors, size) for name in CLASSES),
        artifact=size,
        code_bytes=code,
        code_is_estimate=cfg.rules.code_bytes == "estimate",
        cap_bytes=cfg.budget.artifact_bytes,
        flops=flops,
        batch_tokens=batch,
        step_time=step_time,
        compiling=compile_time(cfg, title, history),
        steps=steps,
        train_seconds=cfg.budget.train_seconds,
        score=score_time(cfg, model, title, history),
        eval_seconds=cfg.budget.eval_seconds,
        memory_bytes=cpu_bytes(cfg, model),
        pruned=pruned,
        step_factor=step_factor,
        gpu=gpu,
    )


def _class_plan(name: str, tensors: StoredTensors, size: ArtifactSize) -> ClassPlan:
    mine = [t for t in tensors if t.tensor_class == name]
    roles = {t.role for t in mine}
    return ClassPlan(
        name,
        params=sum(t.numel for t in mine),
        formats=tuple(sorted({t.format for t in mine})),
        raw_bits=sum(t.raw_bits for t in mine),
        stored_bytes=sum(stored for role, stored in size.by_role.items() if role in roles),
    )
