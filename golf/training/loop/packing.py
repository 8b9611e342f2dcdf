"""Trained weights to the bytes of the artifact: quantize, prune until they fit, pack, log the sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

from golf.artifact.container import pack, plain_bytes
from golf.artifact.quant.fitting import fitting_factor, octave_bytes, tuned_scale_bytes, with_steps
from golf.artifact.quant.formats import CodedTensors, Tensors
from golf.artifact.quant.partly import PartlyRounded
from golf.artifact.quant.policy import below_int8, quantize
from golf.artifact.quant.pruning import MARGIN_BYTES, Pruning, prune_to_fit
from golf.run.trainlog import TrainLog
from golf.settings.config import Config, QuantConfig, scored_config, trains_apart


class PackedModel(NamedTuple):
    """A model in its stored form."""

    coded: CodedTensors
    artifact: bytes  # content of the artifact file
    weight_bytes: int  # bytes of the weights before quantization


def pack_model(cfg: Config, weights: Tensors, coded: CodedTensors) -> PackedModel:
    """Pack `weights`, which `round_model` has coded."""
    if trains_apart(cfg):
        cfg = scored_config(cfg)
    # The settings are packed with the weights, so that the artifact alone tells how to rebuild the model.
    content = pack(coded, cfg.model, cfg.quant, cfg.tech)
    return PackedModel(coded, content, sum(tensor.nbytes for tensor in weights.values()))


def round_model(
    cfg: Config, weights: Tensors, code_bytes: int, hessians: Tensors | None = None, log: TrainLog | None = None
) -> CodedTensors:
    """Return the stored form of `weights`, which are on the CPU; `hessians` are GPTQ's.

    `code_bytes` count together with the artifact where `quant.fit=cap` or `quant.prune.to_fit` fills the cap.
    """
    if trains_apart(cfg):
        cfg = scored_config(cfg)
    if cfg.quant.tune.steps > 0:
        code_bytes += tuned_scale_bytes(weights, cfg.quant, cfg.tech)
    if cfg.quant.fit == "cap":
        coded = filling_the_cap(cfg, weights, code_bytes, lambda q: quantize(weights, q, hessians, cfg.tech), log)[1]
    else:
        coded = quantize(weights, cfg.quant, hessians, cfg.tech)
    if cfg.quant.prune.to_fit:
        coded = _pruned(cfg, coded, below_int8(weights, cfg.quant), code_bytes, log)
    return coded


def round_rest(cfg: Config, model: PartlyRounded, code_bytes: int, log: TrainLog | None = None) -> CodedTensors:
    """Return the stored form of a model that is rounded but for its last stages, whose steps may still fill the cap."""
    if trains_apart(cfg):
        cfg = scored_config(cfg)
    if cfg.quant.fit == "cap":
        if cfg.quant.tune.steps > 0:
            code_bytes += tuned_scale_bytes(model.weights, cfg.quant, cfg.tech)
        cfg = dataclasses.replace(cfg, quant=model.quant)
        return filling_the_cap(cfg, model.left(), code_bytes, model.whole, log)[1]
    return model.whole(model.quant)


def cap_factor(
    cfg: Config, weights: Tensors, code_bytes: int, hessians: Tensors | None, log: TrainLog | None = None
) -> float:
    """Return the factor on all steps with which `round_model` fills the cap."""
    if trains_apart(cfg):
        cfg = scored_config(cfg)
    if cfg.quant.tune.steps > 0:
        code_bytes += tuned_scale_bytes(weights, cfg.quant, cfg.tech)
    return filling_the_cap(cfg, weights, code_bytes, lambda q: quantize(weights, q, hessians, cfg.tech), log)[0]


def _pruned(cfg: Config, coded: CodedTensors, names: list[str], code_bytes: int, log: TrainLog | None) -> CodedTensors:
    """Return `coded` with the tensors `names` pruned until artifact and code fit.

    If even zeroing every code that may go is not enough, they stay unpruned and the log gets a warning.
    """
    pruning = Pruning(coded, names)
    target = cfg.budget.artifact_bytes - code_bytes - MARGIN_BYTES
    fitted = prune_to_fit(pruning, lambda tensors: len(pack(tensors, cfg.model, cfg.quant, cfg.tech)), target)
    if log and fitted:
        log.pruned(fitted[1], pruning.most)
    elif log:
        log.warning(f"zeroing all {pruning.most:,} codes that may go does not bring the artifact under the cap")
    return fitted[0] if fitted else coded


def filling_the_cap(
    cfg: Config,
    moved: Tensors,
    code_bytes: int,
    coded_by: Callable[[QuantConfig], CodedTensors],
    log: TrainLog | None,
) -> tuple[float, CodedTensors]:
    """Return the factor on the steps that fills the cap, the coarsest one tried if none fits, and what is stored by it.

    `coded_by` returns the stored form of all weights, of which those of `moved` follow its settings.
    """
    tried: dict[float, CodedTensors] = {}

    def packed_bytes(factor: float) -> int:
        # Every try is kept, because the search ends at a factor that it has tried.
        tried[factor] = coded_by(with_steps(cfg.quant, factor))
        return len(pack(tried[factor], cfg.model, cfg.quant, cfg.tech))

    # Without a matrix in codes no step changes the size, and the search ends at its limits.
    slope = max(1.0, octave_bytes(moved, cfg.quant, cfg.tech))
    factor = fitting_factor(packed_bytes, cfg.budget.artifact_bytes - code_bytes, slope)
    if log and factor:
        log.fitted(factor, len(tried))
    elif log:
        log.warning(f"steps {max(tried):.3g} times as large do not bring the artifact under the cap")
    used = factor or max(tried)
    return used, tried[used]


def log_sizes(cfg: Config, packed: PackedModel, raw_model_bytes: int, code_bytes: int, log: TrainLog) -> None:
    """Log the sizes of model, artifact and code in bytes."""
    if trains_apart(cfg):
        cfg = scored_config(cfg)
    size, stored = len(packed.artifact), sum(tensor.payload_bytes for tensor in packed.coded.values())
    plain, ratio = plain_bytes(packed.coded, cfg.model, cfg.tech), packed.weight_bytes / stored
    log.sizes(raw_model=raw_model_bytes, code=code_bytes, artifact=size, stored=stored, uncompressed=plain, ratio=ratio)
