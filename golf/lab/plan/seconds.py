"""Predicted times on this machine: milliseconds a step, steps within the budget, seconds of a score."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from golf.errors import GolfError
from golf.lab.plan.artifact_size import Interval
from golf.lab.plan.flops import challenge_tokens, flops_per_scored_token
from golf.lab.plan.gpu_scoring import Rates, document_lengths, ttt_only_seconds
from golf.lab.plan.history import FinishedRun
from golf.paths import resolve
from golf.run.core_time import lacked_cores
from golf.settings.config import Config, changes_score, training_seconds, world_size
from golf.settings.hardware import CPU_CORE_FLOPS
from golf.system import cpu_cores
from golf.training.data.shards import find_shards, open_shard
from golf.training.model.build import shapeless_model
from golf.training.model.gpt import GPT
from golf.training.scoring.document_queue import list_documents
from golf.words import counted

SIMILAR = 2.0  # largest ratio of operations a step between runs that are compared
MOST_COMPARED = 5  # finished runs
LEAST_SECONDS = 1.0  # of a score that tells the speed of others; the rest of a shorter one is not its operations
# Warm-up with compiling where no finished run tells it: docs/planning.md and docs/benchmarks_log.md.
ESTIMATED_COMPILING = {
    "cuda": (84.0, 188.0, "an estimate: public logs of 8×H100"),
    "cpu": (20.0, 60.0, "an estimate: one block and a whole model on two cores"),
}
STRIDE = 64  # tokens, for configurations without a sliding score


class StepTime(NamedTuple):
    """Time of a training step."""

    step_ms: Interval | None  # None if no finished run tells
    basis: str  # evidence in words


class CompileTime(NamedTuple):
    """Seconds before the clock in which a run compiles, warms up and proves its techniques."""

    low: float  # where an earlier run has left compiled code
    high: float
    basis: str  # evidence in words


class ScoreTime(NamedTuple):
    """Time of the artifact's longest score by windows over the run's validation split."""

    stride: int  # tokens between windows; 0 = the flat score, for configurations without a sliding one
    tokens: int | None  # of the split; None for data that is not built yet
    seconds: float | None  # with the ranks of the configuration; None if nothing tells
    basis: str  # evidence in words
    ttt_seconds: float | None = None  # of test-time training on a CPU; None without, or if nothing tells


def expected_step_time(cfg: Config, flops_per_step: float, machine: str, history: Sequence[FinishedRun]) -> StepTime:
    """Predict the time of a step from the most similar finished runs on `machine`.

    The median of their operations per second gives the expected time, the extremes give the ends.
    """
    # A rate in operations a second holds only for the same machine and the same way of computing.
    here = [run for run in history if run.machine == machine and _way(run.config) == _way(cfg)]
    rated = []
    for run in here:
        flops = run.flops_per_step()
        far = abs(math.log(flops / flops_per_step))
        # The step time of a run on a busy machine is that of the others, too.
        if far <= math.log(SIMILAR) and run.result.step_ms and not lacked_cores(run.result.core_share, "training"):
            rated.append((far, run.result.step_ms / flops))
    if not rated:
        return StepTime(None, f"no finished run of a similar step on this machine ({machine})")
    # Similar work comes first: utilisation changes with the size of the model.
    per_flop = [rate for _, rate in sorted(rated)[:MOST_COMPARED]]
    values = (min(per_flop), statistics.median(per_flop), max(per_flop))
    basis = f"{counted(len(per_flop), 'finished run')} here"
    return StepTime(Interval(*(rate * flops_per_step for rate in values)), basis)


def compile_time(cfg: Config, machine: str, history: Sequence[FinishedRun]) -> CompileTime | None:
    """Return the seconds of compiling from finished runs of this model on `machine`, or else an estimate.

    None for runs that do not compile.
    """
    if cfg.launch.compile == "off":
        return None
    graph = cfg.model, cfg.tech, cfg.data.train_seq_len, cfg.data.micro_batches
    same = [
        run.result.warmup_seconds
        for run in history
        if run.machine == machine and _way(run.config) == _way(cfg) and run.result.warmup_seconds
        if (run.config.model, run.config.tech, run.config.data.train_seq_len, run.config.data.micro_batches) == graph
    ]
    if same:
        return CompileTime(min(same), max(same), f"{counted(len(same), 'finished run')} of this model here")
    return CompileTime(*ESTIMATED_COMPILING["cuda" if cfg.launch.device == "cuda" else "cpu"])


def _way(cfg: Config) -> tuple[object, ...]:
    """Return how a configuration computes: device, ranks, compilation, dtype, kernels."""
    launch = cfg.launch
    # A run of a sweep has the number of its share, also where all cores are meant.
    ranks = launch.nproc, launch.nodes, launch.threads or max(1, cpu_cores() // launch.nproc)
    kernels = cfg.model.attention, launch.loss_kernel, launch.mlp_kernel
    return launch.device, ranks, launch.compile, cfg.model.compute_dtype, kernels


def _scoring(cfg: Config) -> tuple[object, ...]:
    """Return how a configuration scores: dtype, and what it mixes into the model's probabilities."""
    return cfg.eval.dtype, cfg.eval.tilt.method, {**cfg.tech} if changes_score(cfg) else None


def steps_within_budget(cfg: Config, step_ms: Interval | None) -> Interval | None:
    """Return the steps until the clock or the step cap ends the run; None with a clock and an unknown step time."""
    cap = float(cfg.schedule.iterations)
    if not training_seconds(cfg):
        return Interval(cap, cap, cap)
    if step_ms is None:
        return None
    # A fast step makes many of them, so the ends are reversed.
    return Interval(*(min(cap, math.floor(1000.0 * training_seconds(cfg) / ms)) for ms in reversed(step_ms)))


def score_time(cfg: Config, model: GPT, machine: str, history: Sequence[FinishedRun]) -> ScoreTime:
    """Predict the seconds of a score from the scores of finished runs on `machine`.

    Sliding scores are used if there are any, else flat ones, by seconds per operation.
    """
    stride, tokens = cfg.eval.stride, scored_tokens(cfg)
    here = [run for run in history if run.machine == machine and _scoring(run.config) == _scoring(cfg)]
    sliding = [r for run in here if (r := _rank_seconds_per_flop(run, sliding=True))][:MOST_COMPARED]
    rates = sliding or [r for run in here if (r := _rank_seconds_per_flop(run, sliding=False))][:MOST_COMPARED]
    basis = f"{counted(len(rates), 'sliding score' if sliding else 'flat score')} here"
    if not rates and cfg.launch.device == "cpu":
        # Eager and compiled scores come close to the speed of training.
        rates, basis = [world_size(cfg) / (CPU_CORE_FLOPS * cpu_cores())], "rough, by operations"
    if not rates or tokens is None:
        why = "the data is not built yet" if rates else f"no score in {cfg.eval.dtype} on this machine ({machine})"
        return ScoreTime(stride, tokens, None, why)
    rate = statistics.median(rates)
    # Ranks divide the windows among them, so the time falls with their number.
    seconds = rate * flops_per_scored_token(cfg, model, stride) * tokens / world_size(cfg)
    ttt = None
    if cfg.eval.ttt.method != "off" and cfg.launch.device == "cpu":
        ttt = ttt_only_seconds(cfg, model, Rates(1 / rate, 1 / rate, 1 / rate), _target_counts(cfg, tokens))
    return ScoreTime(stride, tokens, seconds, basis, ttt)


def scored_tokens(cfg: Config) -> int | None:
    """Return the tokens of the validation split; None if the data is another one than FineWeb and not there."""
    if cfg.data.name.startswith("fineweb"):
        return challenge_tokens(cfg)
    tokens = _validation_tokens(cfg)
    return None if tokens is None else tokens.size


def _validation_tokens(cfg: Config) -> np.ndarray | None:
    try:
        shards = find_shards(resolve(cfg.data.path), cfg.data.val_files, "val")
        return np.concatenate([open_shard(path) for path in shards])
    except GolfError:
        return None


def _target_counts(cfg: Config, tokens: int) -> np.ndarray:
    """Return the targets of the documents of the validation split, int64 `[n]`; about those of FineWeb without it."""
    tokens_there = _validation_tokens(cfg)
    return document_lengths(tokens) if tokens_there is None else list_documents(tokens_there)[:, 1]


def _rank_seconds_per_flop(run: FinishedRun, *, sliding: bool) -> float | None:
    """Return the seconds per operation of one rank of `run` when it scored; None without such a score of a second."""
    score = run.result.post_quant_sliding if sliding else run.result.post_quant
    if score is None or score.seconds < LEAST_SECONDS or lacked_cores(run.result.eval_core_share, "scoring"):
        return None
    stride = run.config.eval.stride if sliding else 0
    work = flops_per_scored_token(run.config, shapeless_model(run.config), stride) * score.tokens
    # Ranks share a score, and each is busy for its whole time.
    return score.seconds * world_size(run.config) / work
