"""The parts of a run that the framework's rank (`rank.run_rank`) and the exported script (`train_gpt`) share.

In order: set up torch, build the state (`state`), log the header, warm up (`warmup`), train (`training`), calibrate,
pack (`export`), score the artifact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import NamedTuple

import torch
from torch import Tensor

from golf.bits import Score
from golf.run.trainlog import TrainLog
from golf.settings.config import Config, uses_gptq
from golf.training.data.batches import open_loader
from golf.training.data.dataset import Dataset
from golf.training.data.loader import Loader
from golf.training.loop.calibration import Calibration, collect, text_of
from golf.training.loop.state import TrainState
from golf.training.loop.training import Training
from golf.training.scoring.scorer import Scorer


class ArtifactScores(NamedTuple):
    """Scores of the weights in an artifact, named as in result.json; None where the configuration asks for none."""

    post_quant: Score
    post_quant_sliding: Score | None
    post_quant_ttt: Score | None


def set_up_torch(cfg: Config) -> None:
    """Seed torch and let matrix products in float32 use TF32, as the public scripts do."""
    torch.manual_seed(cfg.seed)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True


def log_header(log: TrainLog, name: str, dataset: Dataset, state: TrainState) -> None:
    """Write the first lines of the log, which is called `name`."""
    log.start(
        name=name,
        train_shards=len(dataset.train),
        val_tokens=dataset.validation.size - 1,
        model_params=state.model_params,
        attention=state.attention,
    )
    for line in state.kernels:
        log.line(line)


def validation(state: TrainState, scorer: Scorer) -> Callable[[bool], Score]:
    """Return the function that the timed loop validates with. Given True, it scores the weights that are exported."""

    def validate(last: bool) -> Score:
        weights = state.hooks.final_weights() if last else state.model.scored_weights()
        return scorer(weights, state.switches.scored())

    return validate


def calibrate_trained(
    cfg: Config, state: TrainState, training: Training, loader: Loader, dataset: Dataset, log: TrainLog
) -> Calibration | None:
    """Collect the Hessians for GPTQ; None if the number format needs none, or if the run diverged.

    Training text is read from where `loader` stands, so that it is new to the model, or by a loader of its own over
    `dataset`.
    """
    if not uses_gptq(cfg.quant) or training.diverged:
        return None
    log.calibrating()
    weights, ranks = state.hooks.final_weights(), state.ranks
    if cfg.quant.calibration.source == "self_generated":
        calibration = collect(cfg, weights, ranks)
    else:
        # Training text counts as training, so reading stops with the budget.
        budget = cfg.budget.train_seconds
        left = budget - ranks.first(training.seconds) if budget else math.inf
        text = text_of(cfg)
        with nullcontext(loader) if text is cfg else open_loader(text, dataset, ranks) as reader:
            calibration = collect(text, weights, ranks, reader.next_batch, seconds_left=left)
    log.calibrated(calibration.tokens, calibration.matrices, calibration.seconds)
    if cfg.quant.gptq.drift:
        log.uncorrected(calibration.uncorrected)
    return calibration


def score_artifact(cfg: Config, weights: Mapping[str, Tensor], scorer: Scorer, log: TrainLog) -> ArtifactScores:
    """Take and log every score of the artifact's `weights` that the configuration asks for."""
    standard, windowed, trained = scorer(weights), None, None
    log.round_trip(standard)
    if cfg.eval.stride:
        log.sliding_start()
        windowed = scorer.sliding(weights)
        log.sliding(windowed)
    if cfg.eval.ttt.method != "off":
        trained = scorer.test_time_trained(weights, watcher=log)
        log.test_time_trained(trained)
    return ArtifactScores(standard, windowed, trained)
