"""From trained weights to the artifact file, measured and logged."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from golf.artifact.container import pack, payload
from golf.artifact.quant.formats import CodedTensor
from golf.artifact.quant.policy import below_int8, quantize
from golf.artifact.quant.pruning import Pruning, prune_to_fit
from golf.artifact.script.code_bytes import code_bytes
from golf.files import write_atomic
from golf.run.folder import RunFolder
from golf.run.runlog import RunLog
from golf.run.trainlog import TrainLog
from golf.settings.config import Config
from golf.training.model.weights import weights_to_bytes


@dataclass(frozen=True)
class Sizes:
    """Bytes of what was written, and the seconds that quantizing and packing took."""

    raw_model: int
    artifact: int
    code: int
    seconds: float


def export(
    cfg: Config,
    state_dict: Mapping[str, Tensor],
    folder: RunFolder,
    log: RunLog,
    hessians: Mapping[str, Tensor] | None = None,
) -> Sizes:
    """Write the weights as they are and as the artifact into `folder`; `hessians` are GPTQ's."""
    weights = {name: tensor.detach().cpu() for name, tensor in state_dict.items()}
    write_atomic(folder.weights, weights_to_bytes(weights))
    code = code_bytes(cfg)
    start = time.perf_counter()
    coded = quantized(cfg, weights, code, hessians, log)
    packed = pack(coded, cfg.model, cfg.quant, cfg.tech)
    write_atomic(folder.artifact, packed)
    seconds = time.perf_counter() - start
    sizes = Sizes(folder.weights.stat().st_size, len(packed), code, seconds)
    stored = sum(tensor.payload_bytes for tensor in coded.values())
    log.sizes(
        raw_model=sizes.raw_model,
        code=sizes.code,
        artifact=sizes.artifact,
        stored=stored,
        uncompressed=len(payload(coded, cfg.model, cfg.tech)),
        ratio=sum(tensor.nbytes for tensor in weights.values()) / stored,
    )
    return sizes


def quantized(
    cfg: Config,
    weights: Mapping[str, Tensor],
    code_bytes: int,
    hessians: Mapping[str, Tensor] | None = None,
    log: TrainLog | None = None,
) -> Mapping[str, CodedTensor]:
    """The stored form of `weights`; `code_bytes` count with them where `quant.prune.to_fit` fills the cap."""
    coded = quantize(weights, cfg.quant, hessians)
    if not cfg.quant.prune.to_fit:
        return coded
    pruning = Pruning(coded, below_int8(weights, cfg.quant), cfg.quant.prune.codes)
    target = cfg.budget.artifact_bytes - code_bytes - cfg.quant.prune.margin_bytes
    fitted = prune_to_fit(pruning, lambda tensors: len(pack(tensors, cfg.model, cfg.quant, cfg.tech)), target)
    if log and fitted:
        log.pruned(fitted[1], pruning.most)
    elif log:
        log.warning(f"zeroing all {pruning.most:,} codes that may go does not bring the artifact under the cap")
    return fitted[0] if fitted else coded
