"""Retraining between the stages of rounding: what is still in floats makes up for what has been rounded.

After each stage all tensors that are not rounded yet take Adam steps by the divergence from the trained model, on
training text. Source: incremental network quantization, arXiv 1702.03044, with the divergence in place of the loss.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from golf.artifact.quant.fitting import with_steps
from golf.artifact.quant.formats import CodedTensors, Tensors
from golf.artifact.quant.hessians import InputHessians, rounded_by_gptq
from golf.artifact.quant.partly import PartlyRounded, coarse_matrices, rounding_stages
from golf.artifact.quant.policy import repaired_names
from golf.run.trainlog import TrainLog
from golf.settings.config import Config, micro_batch_tokens, scored_config, trains_apart
from golf.training.data.batches import open_loader
from golf.training.data.dataset import Dataset
from golf.training.data.loader import Loader
from golf.training.loop.calibration import Calibration, collect, text_of
from golf.training.loop.drift import read_inputs
from golf.training.loop.packing import cap_factor
from golf.training.loop.state import TrainState
from golf.training.loop.steps import NextBatch
from golf.training.loop.tuning import Losses, Rows, rows_of_steps
from golf.training.model.build import build_scored_model
from golf.training.model.gpt import GPT
from golf.training.ranks import Ranks
from golf.words import counted

CONTROL_SHARE = 0.3  # of the rate, for tensors that are no matrices
WARMUP_STEPS = 4  # of every stage
HELD_OUT = 4  # steps' worth of training text that is held out
HALVINGS = 2  # of what the steps of a stage changed, before it is taken back


@dataclass(frozen=True)
class Retraining:
    """Outcome of a retraining: a model of which the last stage, and those that came too late, are not rounded."""

    model: PartlyRounded
    stages: int  # stages whose steps were kept
    tried: int  # stages with steps
    missed: int  # stages for which no time was left
    steps: int  # steps that were made
    divergence: float  # on held-out text before the last stage is rounded, in nats per token
    seconds: float


def retrain_trained(
    cfg: Config,
    state: TrainState,
    left: float,
    calibration: Calibration,
    loader: Loader,
    code_bytes: int,
    log: TrainLog,
) -> Retraining:
    """Round the trained weights in stages with training between them, which must all end within the `left` seconds.

    Training text is read from where `loader` stands. Under `quant.fit=cap` the steps are those of the trained weights
    that fill the cap, and the last stage makes up for the difference.
    """
    start, ranks, factor = time.perf_counter(), state.ranks, 1.0
    weights = {name: tensor.detach().cpu() for name, tensor in state.final_weights().items()}
    if cfg.quant.fit == "cap":
        # Ranks need not find the same size.
        found = cap_factor(cfg, weights, code_bytes, calibration.hessians, log) if ranks.is_first else 0.0
        factor = ranks.first(found)
        left -= ranks.first(time.perf_counter() - start)
    retraining = round_and_retrain(
        cfg, weights, calibration, ranks, loader.next_batch, factor=factor, seconds_left=left
    )
    seconds = ranks.first(time.perf_counter() - start)
    log.retrained(retraining.stages, retraining.tried, retraining.steps, retraining.divergence, seconds)
    if retraining.missed:
        log.warning(
            f"{counted(retraining.missed, 'stage')} of rounding had no retraining before the training time was over: "
            "raise quant.tune.reserve_seconds."
        )
    return dataclasses.replace(retraining, seconds=seconds)


def retrain(state_dict: Tensors, cfg: Config, code_bytes: int, dataset: Dataset) -> PartlyRounded:
    """Return the weights of a finished run rounded but for the last stage, with training after each of the others.

    Works in this process on `cfg.launch.device`, without a time limit. Training text follows that of the calibration.
    """
    ranks, text, factor = Ranks(device=torch.device(cfg.launch.device)), text_of(cfg), 1.0
    with open_loader(text, dataset, ranks) as loader:
        found = collect(text, build_scored_model(text, ranks.device), state_dict, ranks, loader.next_batch)
    if cfg.quant.fit == "cap":
        factor = cap_factor(cfg, state_dict, code_bytes, found.hessians)
    after = math.ceil(cfg.quant.calibration.tokens / micro_batch_tokens(cfg))
    with open_loader(cfg, dataset, ranks, after=after) as loader:
        return round_and_retrain(cfg, state_dict, found, ranks, loader.next_batch, factor=factor).model


def round_and_retrain(
    cfg: Config,
    state_dict: Tensors,
    calibration: Calibration,
    ranks: Ranks,
    next_batch: NextBatch,
    *,
    factor: float = 1.0,
    seconds_left: float = math.inf,
) -> Retraining:
    """Round all stages but the last, and after each take `quant.retrain.steps` steps in the arithmetic of scoring.

    All ranks give the same `state_dict`, on the CPU, and get the same model. A stage that would not end within
    `seconds_left` is not begun. Changes that do not lower the divergence on held-out text are halved, then taken back.
    """
    start, scored = time.perf_counter(), scored_config(cfg) if trains_apart(cfg) else cfg
    quant, tech = with_steps(scored.quant, factor), scored.tech
    repaired = repaired_names(state_dict, quant, calibration.hessians, tech) if ranks.is_first else set[str]()
    repaired = ranks.of_first(repaired)
    model = PartlyRounded(quant, tech, dict(state_dict), dict(calibration.hessians), repaired)
    losses, rows = Losses(cfg, state_dict, ranks), rows_of_steps(cfg, next_batch, ranks)
    stages = _stages(model, losses, calibration.batches)
    # Its attention may be another one than that of the training.
    reader = build_scored_model(text_of(cfg), ranks.device)
    held_out = [next(rows) for _ in range(HELD_OUT)]
    divergence, kept, rounded = 0.0, 0, 0
    longest = last = ranks.first(time.perf_counter() - start)
    for stage in stages[:-1]:
        # One clock for all, because every rank has to leave the loop after the same stage.
        if last + longest > seconds_left:
            break
        _round(model, stage, ranks)
        rounded += 1
        floats = FreeTensors(model, ranks.device)
        divergence = losses.mean(floats, held_out)
        _train(floats, losses, [next(rows) for _ in range(quant.retrain.steps)])
        loss = _halved(floats, losses, held_out, divergence)
        if loss < divergence:
            kept, divergence = kept + 1, loss
            model.weights |= floats.now()
        # The inputs of the next stage, as the model of now hands them on.
        model.hessians |= _hessians(model, reader, stages[rounded], calibration.batches, ranks)
        ranks.synchronize()
        now = ranks.first(time.perf_counter() - start)
        longest, last = max(longest if rounded > 1 else 0.0, now - last), now
    missed = max(0, len(stages) - 1 - rounded)
    return Retraining(model, kept, rounded, missed, rounded * quant.retrain.steps, divergence, last)


class FreeTensors:
    """The float tensors of a model that are not coded, as parameters in float32, beside all that are."""

    def __init__(self, model: PartlyRounded, device: torch.device):
        free = {name: tensor for name, tensor in model.left().items() if tensor.is_floating_point()}
        self.before = free
        self.values = {name: tensor.to(device) for name, tensor in model.weights.items()}
        self.changes = {n: self.values[n].detach().float().clone().requires_grad_() for n in free}
        self.rate = model.quant.retrain.rate

    def decoded(self) -> dict[str, Tensor]:
        """Return the weights as they are now, in the order of the model."""
        return self.values | self.changes

    def now(self) -> dict[str, Tensor]:
        """Return the values of the parameters on the CPU, in their own dtypes."""
        return {name: value.detach().to("cpu", self.before[name].dtype) for name, value in self.changes.items()}

    @torch.no_grad()
    def halve(self) -> None:
        """Take back half of what the steps have changed."""
        for name, value in self.changes.items():
            value.lerp_(self.values[name].float(), 0.5)

    def groups(self) -> list[dict[str, object]]:
        """Return the parameters with their learning rates, as Adam takes them."""
        return [{"params": [value], "lr": self.rate * _size(value)} for value in self.changes.values()]


def _size(tensor: Tensor) -> float:
    """Return what a tensor's learning rate is relative to."""
    value = tensor.detach()
    size = value.square().mean().sqrt() if value.ndim == 2 else CONTROL_SHARE * value.abs().mean()
    # Gains that are zero have to be able to move.
    return float(size.nan_to_num()) + 1e-6


def _train(floats: FreeTensors, losses: Losses, batches: Sequence[Rows]) -> None:
    """Take an Adam step for each of `batches`, at a rate that rises for a few steps and falls to zero."""
    adam = torch.optim.Adam(floats.groups(), betas=(0.9, 0.95), eps=1e-10)
    count = len(batches)

    def share(step: int) -> float:
        return (1 - step / count) * min(1.0, (step + 1) / WARMUP_STEPS)

    schedule = torch.optim.lr_scheduler.LambdaLR(adam, share)
    for batch in batches:
        losses.backward(floats, batch)
        adam.step()
        schedule.step()


def _halved(floats: FreeTensors, losses: Losses, held_out: list[Rows], divergence: float) -> float:
    """Return the divergence on held-out text, with the changes halved until it is below `divergence`, or no more."""
    loss = losses.mean(floats, held_out)
    for _ in range(HALVINGS):
        # Noise of the steps grows with their square, so half of them may help where all do not.
        if loss < divergence:
            break
        floats.halve()
        loss = losses.mean(floats, held_out)
    return loss


def _stages(model: PartlyRounded, losses: Losses, batches: Sequence[Tensor]) -> list[list[str]]:
    """Return the matrices that are rounded together, in the order of their rounding."""
    names, inputs = coarse_matrices(model.weights, model.quant, model.tech), InputHessians()
    with torch.no_grad():
        read_inputs(losses.trained, names, batches[0][:1], inputs.add)
    return rounding_stages(names, inputs.stages(), "tok_emb.weight", model.quant.retrain.by)


def _round(model: PartlyRounded, stage: Sequence[str], ranks: Ranks) -> None:
    """Code the matrices of `stage`, each on one of the ranks: they need not find the same codes to the last bit."""
    names = stage[ranks.rank :: ranks.world_size]
    own: list[tuple[str, CodedTensors]] = [(name, model.code(name, model.quant)) for name in names]
    model.fix(ranks.gather(own))


@torch.no_grad()
def _hessians(
    model: PartlyRounded, reader: GPT, stage: Sequence[str], batches: Sequence[Tensor], ranks: Ranks
) -> dict[str, Tensor]:
    """Return Σ x xᵀ `[c, c]` over the inputs of `stage` in the model as it is, on all ranks."""
    names = rounded_by_gptq({name: model.weights[name] for name in stage}, model.quant)
    inputs = InputHessians()
    reader.load_state_dict(model.weights)
    for ids in batches if names else ():
        read_inputs(reader, names, ids, inputs.add)
    ranks.sum_tensors(list(inputs.sums.values()))
    return {name: hessian.to(model.hessians[name].device) for name, hessian in inputs.result().items()}
