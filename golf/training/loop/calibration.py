"""Calibration for GPTQ: the Hessians of training text, within the training budget, or of the model's own text."""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from golf.artifact.quant.formats import Tensors
from golf.artifact.quant.hessians import InputHessians, rounded_by_gptq
from golf.settings.config import Config, eval_seq_len, scored_config, trains_apart
from golf.training.data.batches import open_loader
from golf.training.data.dataset import Dataset, open_dataset
from golf.training.loop.drift import DriftCorrection, read_inputs
from golf.training.loop.sensitivity import measured_factors
from golf.training.loop.steps import NextBatch
from golf.training.model.build import build_scored_model
from golf.training.model.gpt import GPT
from golf.training.ranks import Ranks

TEMPERATURE = 0.8  # of the distributions from which own text is drawn, as in PR #1019
SAMPLES = 8  # sequences of own text that a rank writes at once


@dataclass(frozen=True)
class Calibration:
    """Hessians for GPTQ, with the tokens and seconds that they took."""

    # Σ x xᵀ [in, in] of every matrix that GPTQ rounds, by name; and what `sensitivity` and `drift` add
    hessians: dict[str, Tensor]
    tokens: int  # tokens of all ranks
    seconds: float
    uncorrected: int = 0  # matrices whose drift was not corrected in time
    batches: list[Tensor] = field(default_factory=list)  # ids [B, T] that this rank read, if they are needed again

    @property
    def matrices(self) -> int:
        return sum(name.endswith(".weight") for name in self.hessians)


def calibrate(state_dict: Tensors, cfg: Config, dataset: Dataset | None = None) -> dict[str, Tensor]:
    """Return the Hessians `[in, in]` by name that `golf.quantize` needs for `state_dict`, without a time limit.

    Works in this process on `cfg.launch.device` and reads training text from its start.
    """
    ranks, text = Ranks(device=torch.device(cfg.launch.device)), text_of(cfg)
    model = build_scored_model(text, ranks.device)
    if cfg.quant.calibration.source == "self_generated":
        return collect(text, model, state_dict, ranks).hessians
    with open_loader(text, dataset or open_dataset(cfg), ranks) as loader:
        return collect(text, model, state_dict, ranks, loader.next_batch).hessians


def text_of(cfg: Config) -> Config:
    """Return `cfg` with the loader and the attention of its calibration."""
    if cfg.quant.calibration.text == "batches" or cfg.quant.calibration.source == "self_generated":
        return cfg
    data = dataclasses.replace(cfg.data, loader="shuffled", shard_order=[])
    return dataclasses.replace(cfg, data=data, model=dataclasses.replace(cfg.model, within_documents=False))


@torch.no_grad()
def collect(
    cfg: Config,
    model: GPT,
    state_dict: Tensors,
    ranks: Ranks,
    next_batch: NextBatch | None = None,
    *,
    seconds_left: float = math.inf,
) -> Calibration:
    """Run `quant.calibration.tokens` tokens through `model` with the weights `state_dict` and sum over the ranks.

    `cfg` is `text_of`'s. `model` is built from it in the arithmetic of scoring, because the Hessians have to be those
    of the scored model, and not compiled, because compiled code calls no hooks. Batches come from `next_batch`, or
    without it from the model's own text. At least one batch is read; a batch that would not end within `seconds_left`
    is not. All ranks get the same Hessians.
    """
    start = time.perf_counter()
    model.load_state_dict(state_dict)
    if cfg.quant.calibration.source == "self_generated":
        batches = _own_text(cfg, model, ranks)
    else:
        assert next_batch is not None, "only a model that writes its own text needs no batches"
        batches = (next_batch()[0].to(ranks.device) for _ in itertools.count())
    names, tokens, read = rounded_by_gptq(state_dict, cfg.quant), 0, list[Tensor]()
    inputs = InputHessians()
    for done, ids in enumerate(batches, start=1):
        # Hooks are on for this pass alone: own text is written between the batches and must not count.
        read_inputs(model, names, ids, inputs.add)
        tokens += ids.numel() * ranks.world_size
        if cfg.quant.gptq.drift or cfg.quant.step_sensitivity > 0 or cfg.quant.retrain.steps > 0:
            read.append(ids)
        # The next batch is judged by the mean time of those so far.
        if tokens >= cfg.quant.calibration.tokens or _agreed(start, ranks) * (done + 1) / done > seconds_left:
            break
    ranks.sum_tensors(list(inputs.sums.values()))
    hessians = inputs.result()
    if ranks.device.type == "mps":
        # GPTQ computes in float64 on the device of its Hessians, and Apple's GPUs have none.
        hessians = {name: hessian.cpu() for name, hessian in hessians.items()}
    uncorrected = 0
    cfg = scored_config(cfg) if trains_apart(cfg) else cfg
    # All steps stay those of their classes if the time is over.
    if cfg.quant.step_sensitivity > 0 and (left := seconds_left - _agreed(start, ranks)) > 0:
        hessians |= measured_factors(cfg, model, state_dict, hessians, read, ranks, left)
    if cfg.quant.gptq.drift:
        drift = DriftCorrection(cfg, model, state_dict, hessians, read, ranks)
        longest, last = 0.0, _agreed(start, ranks)
        for stage in inputs.stages():
            # Matrices of stages that would not end in time keep the Hessians of the trained model.
            if last + longest > seconds_left:
                uncorrected += len(stage)
                continue
            drift.correct(stage)
            now = _agreed(start, ranks)
            longest, last = max(longest, now - last), now
    return Calibration(hessians, tokens, _agreed(start, ranks), uncorrected, read)


def _own_text(cfg: Config, model: GPT, ranks: Ranks) -> Iterator[Tensor]:
    """Yield samples `[SAMPLES, T]` of the model, drawn token by token after a uniformly random first one (PR #1019)."""
    # Ranks draw from different seeds, or they would write the same text.
    random = torch.Generator(ranks.device).manual_seed(cfg.seed * ranks.world_size + ranks.rank)
    while True:
        ids = torch.randint(cfg.model.vocab_size, (SAMPLES, 1), generator=random, device=ranks.device)
        for _ in range(eval_seq_len(cfg) - 1):
            last = model.softcap(model.head(model.hidden(ids)[:, -1])).float()
            ids = torch.cat((ids, torch.multinomial((last / TEMPERATURE).softmax(-1), 1, generator=random)), dim=1)
        yield ids


def _agreed(start: float, ranks: Ranks) -> float:
    """Return the seconds since `start` on the first rank's clock."""
    ranks.synchronize()
    # One clock for all, because every rank has to leave the loop after the same batch.
    return ranks.first(time.perf_counter() - start)
