"""One run on one rank, from the model to the score of its artifact: the main function, and its longer chapters.

The framework (`rank.run_rank`) and the exported script (`golf.train_gpt`) both call it. They differ in what they keep
of a run, and so in the keeper that they hand in.
"""

from __future__ import annotations

import dataclasses
import math
import time
from contextlib import nullcontext

import torch

from golf.artifact.quant.formats import CodedTensors, Tensors
from golf.artifact.quant.sensitivity import STEP
from golf.bits import Score
from golf.errors import GolfError
from golf.run.trainlog import TrainLog
from golf.settings.config import Config, trains_stored, uses_gptq
from golf.training.data.batches import made_ahead, make_loader, open_loader
from golf.training.data.dataset import Dataset
from golf.training.data.loader import Loader
from golf.training.loop.calibration import Calibration, collect, text_of
from golf.training.loop.keeper import Keeper
from golf.training.loop.packing import pack_model, round_model, round_rest
from golf.training.loop.retraining import Retraining, retrain_trained
from golf.training.loop.state import TrainState, build_state
from golf.training.loop.training import Training, Validate, train
from golf.training.loop.tuning import Tuning, tune_floats
from golf.training.ranks import Ranks
from golf.training.scoring.scorer import Scorer


def train_pack_and_score(cfg: Config, dataset: Dataset, ranks: Ranks, keeper: Keeper) -> None:
    """Train, pack, read back and score on this rank. Raises `GolfError` for a loss that is no number."""
    log = keeper.log

    # ---- Model, optimizer, compiled step. The scorer has a model of its own, in the arithmetic of scoring. ----
    state = build_state(cfg, ranks)
    keeper.take_over(state)
    log_header(log, dataset, state)
    scorer = Scorer(cfg, dataset, ranks)

    # ---- Warm-up, before the clock: compiling takes no training time. ----
    keeper.warm_up(cfg, state)

    if not keeper.has_artifact():
        # ---- Training: the timed loop. ----
        loader = make_loader(cfg, dataset, ranks)
        keeper.resume(state, loader)
        with made_ahead(loader, ranks) as batches:
            validate = validation(state, scorer)
            training = keeper.earlier or train(cfg, state, batches, validate, log, keeper.clock, keeper.checkpoints)
            keeper.training_ended(state, training)
            if training.diverged:
                raise GolfError(training.why_diverged())

            # ---- Calibration, retraining and tuning, on the text that follows, within what is left of the time. ----
            calibration = calibrate_trained(cfg, state, training, batches, dataset, log)
            keeper.calibration_ended(calibration)
            retraining, after = None, calibration.seconds if calibration else 0.0
            if cfg.quant.retrain.steps > 0:
                assert calibration is not None
                left = seconds_left(cfg, ranks.first(training.seconds) + after)
                retraining = retrain_trained(cfg, state, left, calibration, batches, keeper.code_bytes, log)
                keeper.tuning_ended(retraining.seconds)
                after += retraining.seconds
            if cfg.quant.tune.steps > 0:
                left = seconds_left(cfg, ranks.first(training.seconds) + after)
                tuning = tune_trained(cfg, state, left, calibration, retraining, batches, keeper)
                keeper.tuning_ended(tuning.seconds + (retraining.seconds if retraining else 0.0))

        # ---- Artifact: quantize, pack, write. Ranks hold the same weights, so the first one does it for all. ----
        keeper.note_memory()
        keeper.prove_trained(state)
        if ranks.is_first:
            weights = {name: tensor.detach().cpu() for name, tensor in state.final_weights().items()}
            if cfg.quant.tune.steps > 0:
                coded = tuning.coded
            elif cfg.quant.retrain.steps > 0:
                assert retraining is not None
                coded = round_rest(cfg, retraining.model, keeper.code_bytes, log)
            else:
                hessians = calibration.hessians if calibration else None
                coded = round_model(cfg, weights, keeper.code_bytes, hessians, log)
            keeper.write_artifact(cfg, pack_model(cfg, weights, coded))

    # ---- Score: only what the file on disk holds counts, so every rank waits until it is complete. ----
    ranks.barrier()
    keeper.artifact_ended()
    scores = score_artifact(cfg, keeper.read_artifact(cfg), scorer, log)
    keeper.judge(scores)


def set_up_torch(cfg: Config) -> None:
    """Seed torch and let matrix products in float32 use TF32, as the public scripts do."""
    torch.manual_seed(cfg.seed)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True


def log_header(log: TrainLog, dataset: Dataset, state: TrainState) -> None:
    """Write the first lines of the log."""
    shards, tokens = len(dataset.train), dataset.validation.size - 1
    log.start(train_shards=shards, val_tokens=tokens, model_params=state.model_params, attention=state.attention)
    for line in state.kernels:
        log.line(line)


def validation(state: TrainState, scorer: Scorer) -> Validate:
    """Return the function that the timed loop validates with. Given True, it scores the weights that are exported."""

    def validate(last: bool) -> Score:
        weights = state.final_weights() if last else state.model.scored_weights()
        return scorer(weights, state.switches.on_in_scores())

    return validate


def calibrate_trained(
    cfg: Config, state: TrainState, training: Training, loader: Loader, dataset: Dataset, log: TrainLog
) -> Calibration | None:
    """Collect the Hessians for GPTQ; None if the number format needs none.

    Training text is read from where `loader` stands, so that it is new to the model, or by a loader of its own over
    `dataset`.
    """
    model = state.calibration_model
    if not uses_gptq(cfg.quant) or model is None:
        return None
    log.calibrating()
    weights, ranks, text = state.final_weights(), state.ranks, text_of(cfg)
    if cfg.quant.calibration.source == "self_generated":
        calibration = collect(text, model, weights, ranks)
    else:
        # Training text counts as training, so reading stops with the budget.
        left = seconds_left(cfg, ranks.first(training.seconds))
        if trains_stored(cfg.quant):
            left -= cfg.quant.tune.reserve_seconds
        with nullcontext(loader) if text is cfg else open_loader(text, dataset, ranks) as reader:
            calibration = collect(text, model, weights, ranks, reader.next_batch, seconds_left=left)
    log.calibrated(calibration.tokens, calibration.matrices, calibration.seconds)
    if cfg.quant.step_sensitivity > 0 and not any(name.endswith(STEP) for name in calibration.hessians):
        log.warning("sensitivity moved no step: raise quant.calibration.reserve_seconds, or drop quant.by_name clips.")
    if cfg.quant.gptq.drift and calibration.uncorrected:
        what = f"the drift of {calibration.uncorrected} matrices was not corrected before the training time was over"
        log.warning(f"{what}: raise quant.calibration.reserve_seconds.")
    return calibration


def seconds_left(cfg: Config, seconds: float) -> float:
    """Return what is left of the training budget after `seconds` of it."""
    return cfg.budget.train_seconds - seconds if cfg.budget.train_seconds else math.inf


def tune_trained(
    cfg: Config,
    state: TrainState,
    left: float,
    calibration: Calibration | None,
    retraining: Retraining | None,
    loader: Loader,
    keeper: Keeper,
) -> Tuning:
    """Round the trained weights and tune the result, which must all end within the `left` seconds of training.

    Training text is read from where `loader` stands. Under `quant.fit=cap` scales are put back until the result fits.
    """
    start, ranks = time.perf_counter(), state.ranks
    weights = {name: tensor.detach().cpu() for name, tensor in state.final_weights().items()}
    coded: CodedTensors = {}
    if ranks.is_first and retraining is not None:
        coded = round_rest(cfg, retraining.model, keeper.code_bytes, keeper.log)
    elif ranks.is_first:
        hessians = calibration.hessians if calibration else None
        coded = round_model(cfg, weights, keeper.code_bytes, hessians, keeper.log)
    # Ranks need not find the same codes to the last bit.
    coded = ranks.of_first(coded)
    left -= ranks.first(time.perf_counter() - start)

    def fits(tuned: CodedTensors) -> bool:
        return len(pack_model(cfg, weights, tuned).artifact) <= cfg.budget.artifact_bytes - keeper.code_bytes

    fitting = fits if cfg.quant.fit == "cap" else None
    tuning = tune_floats(cfg, coded, weights, ranks, loader.next_batch, seconds_left=left, fits=fitting)
    seconds = ranks.first(time.perf_counter() - start)
    keeper.log.tuned(tuning.steps, tuning.before, tuning.after, seconds)
    return dataclasses.replace(tuning, seconds=seconds)


def score_artifact(cfg: Config, weights: Tensors, scorer: Scorer, log: TrainLog) -> list[Score | None]:
    """Log and return the standard score of the artifact's `weights`, the sliding one and that with training.

    What the configuration does not ask for is None.
    """
    standard, windowed, trained = scorer(weights), None, None
    log.round_trip(standard)
    if cfg.eval.stride:
        log.sliding_start()
        windowed = scorer.sliding(weights)
        log.sliding(windowed)
    if cfg.eval.ttt.method != "off":
        trained = scorer.test_time_trained(weights, watcher=log)
        log.test_time_trained(trained)
    return [standard, windowed, trained]
