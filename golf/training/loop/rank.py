"""What one rank does, from start to end: data, model, warm-up, training, artifact, score of the artifact, result."""

from __future__ import annotations

import resource
import time

import torch

from golf.artifact.codec.codecs import codec_version
from golf.artifact.container import load
from golf.bits import Score
from golf.errors import GolfError
from golf.paths import resolve
from golf.run.environment import machine_kind
from golf.run.folder import RunFolder
from golf.run.identity import variant_id
from golf.run.result import DIVERGED, OK, OVER_BYTES, OVER_TIME, VOID, Result
from golf.run.runlog import RunLog
from golf.settings.config import Config, uses_gptq
from golf.settings.consistency import warnings
from golf.training.data.batches import open_loader
from golf.training.data.dataset import open_dataset
from golf.training.loop.calibration import calibrate_after
from golf.training.loop.checkpoint import Checkpoints
from golf.training.loop.export import Sizes, export
from golf.training.loop.pace import check_speed
from golf.training.loop.proofs import inert_techniques, scoring_breaches
from golf.training.loop.recompiles import RecompileWatch
from golf.training.loop.steps import TrainStep
from golf.training.loop.switches import StepHooks, Switches
from golf.training.loop.training import Training, train
from golf.training.loop.warmup import restored, synthetic_batch, warm_up
from golf.training.model.attention import choose_kernel
from golf.training.model.build import build_model, compile_for_training
from golf.training.model.weights import load_weights
from golf.training.optim.groups import build_optimizer
from golf.training.ranks import Ranks
from golf.training.scoring.scorer import Scorer


def run_rank(cfg: Config, folder: RunFolder, ranks: Ranks) -> Result:
    """The whole run of this rank; all ranks return a result, the first one's is the run's."""
    log = RunLog(folder, cfg, is_first=ranks.is_first)
    try:
        return _run(cfg, folder, ranks, log)
    finally:
        log.close()


def _run(cfg: Config, folder: RunFolder, ranks: Ranks, log: RunLog) -> Result:
    _set_up_torch(cfg)
    dataset = open_dataset(cfg)
    model = build_model(cfg)
    if cfg.model.init_from:
        load_weights(model, resolve(cfg.model.init_from))
    model.to(ranks.device)
    params = sum(p.numel() for p in model.parameters())
    attention = choose_kernel(ranks.device, cfg)
    log.start(
        name=str(folder.train_log),
        train_shards=len(dataset.train),
        val_tokens=dataset.validation.size - 1,
        model_params=params,
        attention=attention,
    )
    optimizer = build_optimizer(cfg, model, rank=ranks.rank, world_size=ranks.world_size)
    compile_for_training(model, cfg.launch.compile)
    step = TrainStep(cfg, model, optimizer, ranks)
    scorer = Scorer(cfg, dataset, ranks)
    result = Result(
        name=cfg.name,
        variant_id=variant_id(cfg),
        seed=cfg.seed,
        machine=machine_kind(),
        warnings=folder.read_machine_warnings() + warnings(cfg),
        tech=list(cfg.tech),
        attention=attention,
        scale=cfg.scale.name,
        data_name=cfg.data.name,
        data_fingerprint=dataset.fingerprint,
        model_params=params,
    )
    switches = Switches(cfg, log.switched_on)
    failures = _prepare(cfg, step, switches, result, ranks, log)
    if failures and cfg.rules.failed_check == "stop":
        result.state, result.reason = VOID, "; ".join(failures)
        return result
    hooks = StepHooks(cfg, model)
    checkpoints = Checkpoints(cfg, folder, ranks, step, hooks)
    start = checkpoints.load()
    if start.step:
        switches.resume(start.active)
        log.resumed(start.step, start.train_seconds)

    def validate(last: bool) -> Score:
        return scorer(hooks.final_weights() if last else model.state_dict(), switches.scored())

    watch = RecompileWatch()
    with open_loader(cfg, dataset, ranks, after=start.step * step.accumulation) as loader:
        training = train(cfg, step, loader, validate, ranks, log, switches, hooks, checkpoints, watch, log.warning)
        calibration = None
        if uses_gptq(cfg.quant) and not training.diverged:
            own_text = cfg.quant.calibration.source == "self_generated"
            log.display.update(1.0, "writing text to calibrate on" if own_text else "calibrating")
            calibration = calibrate_after(cfg, hooks.final_weights(), loader.next_batch, training.seconds, ranks)
            log.calibrated(calibration.tokens, len(calibration.hessians), calibration.seconds)
            result.calibration_seconds = calibration.seconds
    _record_training(result, cfg, training, watch.causes, ranks, log)
    if training.diverged:
        result.state, result.reason = DIVERGED, f"the loss was {training.train_loss} at step {training.steps}"
        return result
    failures += [*switches.never_on(), *hooks.idle_averages()]
    log.display.update(1.0, "packing the artifact and scoring it")
    hessians = calibration.hessians if calibration else None
    sizes = export(cfg, hooks.final_weights(), folder, log, hessians) if ranks.is_first else None
    ranks.barrier()
    _score_artifact(result, cfg, load(folder.artifact).state_dict(), scorer, log)
    if sizes is None:
        result.state = OK  # of this rank; the first one judges the run
    else:
        _record_artifact(result, cfg, sizes)
    if failures:
        result.state, result.reason = VOID, "; ".join(failures)
    return result


def _prepare(cfg: Config, step: TrainStep, switches: Switches, result: Result, ranks: Ranks, log: RunLog) -> list[str]:
    """Everything before the clock: compile and warm up, and prove that what is selected is live.

    Returns a sentence for every proof that failed on any rank.
    """
    log.display.update(0.0, "warming up" if cfg.launch.compile == "off" else "compiling, which takes its time once")
    start = time.perf_counter()
    failures = warm_up(cfg, step, switches, StepHooks(cfg, step.model), log.warmup_step)
    with restored(step):
        speed = check_speed(cfg, step, ranks, switches.active, lambda: synthetic_batch(cfg))
    if speed and speed.warning:
        result.slowdown = speed.slowdown
        _judge_machine(cfg, speed.warning, result, log)
    if ranks.is_first:
        failures += inert_techniques(cfg) + scoring_breaches(cfg)
    result.warmup_seconds = time.perf_counter() - start
    for failure in failures:
        log.warning(f"check failed: {failure}")
    return failures or ["another rank found a check that failed"] * int(ranks.sum(len(failures))[0] > 0)


def _judge_machine(cfg: Config, warning: str, result: Result, log: RunLog) -> None:
    if cfg.launch.unfit == "refuse":
        raise GolfError(f"{warning} (launch.unfit=warn runs all the same).")
    log.warning(warning)
    result.warnings.append(warning)


def _score_artifact(result: Result, cfg: Config, weights: dict[str, torch.Tensor], scorer: Scorer, log: RunLog) -> None:
    """Every score of the artifact's weights that the configuration asks for."""
    result.post_quant = scorer(weights)
    log.round_trip(result.post_quant)
    if cfg.eval.stride:
        log.display.update(1.0, "scoring the artifact with a sliding window")
        result.post_quant_sliding = scorer.sliding(weights)
        log.sliding(result.post_quant_sliding)
    if cfg.eval.ttt.method != "off":
        result.post_quant_ttt = scorer.test_time_trained(weights, watcher=log)
        log.test_time_trained(result.post_quant_ttt)
    writing = _calibration_seconds(result, cfg, "self_generated")
    result.eval_seconds = sum(score.seconds for score in result.artifact_scores) + writing


def _calibration_seconds(result: Result, cfg: Config, source: str) -> float:
    """What calibrating took, if `source` is what it was calibrated on."""
    return result.calibration_seconds or 0.0 if cfg.quant.calibration.source == source else 0.0


def _set_up_torch(cfg: Config) -> None:
    torch.manual_seed(cfg.seed)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True


def _record_training(
    result: Result, cfg: Config, training: Training, recompiles: list[str], ranks: Ranks, log: RunLog
) -> None:
    result.steps, result.train_seconds = training.steps, training.seconds
    result.tokens_seen = training.steps * cfg.data.train_batch_tokens
    result.step_ms = 1000 * training.seconds / max(training.steps, 1)
    result.train_loss, result.pre_quant = training.train_loss, training.score
    result.budget_train_seconds = cfg.budget.train_seconds
    result.warnings += [f"recompiled while the clock ran: {cause}" for cause in recompiles]
    for cause in recompiles:
        log.warning(f"recompiled while the clock ran: {cause}")
    allocated, reserved = _peak_memory_mib(ranks.device)
    result.peak_memory_mib = allocated
    log.peak_memory(allocated, reserved)


def _record_artifact(result: Result, cfg: Config, sizes: Sizes) -> None:
    before, after = result.pre_quant, result.post_quant
    assert before is not None and after is not None and before.how == after.how
    result.quant_gap_bpb = after.val_bpb - before.val_bpb
    result.raw_model_bytes, result.artifact_bytes, result.code_bytes = (
        sizes.raw_model,
        sizes.artifact,
        sizes.code,
    )
    result.total_bytes, result.cap_bytes = sizes.artifact + sizes.code, cfg.budget.artifact_bytes
    result.codec = codec_version(cfg.quant.codec)
    result.quantize_seconds = sizes.seconds
    result.state, result.reason = _verdict(result, cfg)


def _verdict(result: Result, cfg: Config) -> tuple[str, str]:
    """`ok`, or the first rule of the budget that the run breaks."""
    budget = cfg.budget
    assert result.total_bytes is not None and result.eval_seconds is not None
    over_bytes = result.total_bytes - budget.artifact_bytes
    if over_bytes > 0:
        return (
            OVER_BYTES,
            f"artifact and code are {over_bytes:,} bytes over the cap of {budget.artifact_bytes:,}",
        )
    calibrating = _calibration_seconds(result, cfg, "train")
    over_train = result.train_seconds + calibrating - budget.train_seconds
    if budget.train_seconds and over_train > budget.grace_seconds:
        what = "training with calibration" if calibrating else "training"
        return OVER_TIME, f"{what} took {over_train:.1f} s more than its {budget.train_seconds:g} s"
    if budget.eval_seconds and result.eval_seconds > budget.eval_seconds:
        return OVER_TIME, f"scoring took {result.eval_seconds:.1f} s of at most {budget.eval_seconds:g} s"
    return OK, ""


def _peak_memory_mib(device: torch.device) -> tuple[int, int]:
    """Allocated and reserved peak on a GPU; on a CPU the process's peak resident memory, twice."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) >> 20, torch.cuda.max_memory_reserved(device) >> 20
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    return resident, resident
