"""From trained weights to the artifact file, measured and logged."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from golf.artifact.code import code_bytes
from golf.artifact.container import pack, payload
from golf.config import Config
from golf.model.checkpoint import weights_to_bytes
from golf.quant.formats import CodedTensor
from golf.quant.policy import below_int8, quantize
from golf.quant.pruning import Pruning, prune_to_fit
from golf.report.runlog import RunLog
from golf.run.files import write_atomic
from golf.run.folder import RunFolder


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
    start = time.perf_counter()
    weights = {name: tensor.detach().cpu() for name, tensor in state_dict.items()}
    write_atomic(folder.weights, weights_to_bytes(weights))
    coded = quantized(cfg, weights, hessians, log)
    packed = pack(coded, cfg.model, cfg.quant, cfg.tech)
    write_atomic(folder.artifact, packed)
    seconds = time.perf_counter() - start
    sizes = Sizes(folder.weights.stat().st_size, len(packed), code_bytes(cfg.tech, cfg.quant.codec), seconds)
    stored = sum(tensor.payload_bytes for tensor in coded.values())
    log.sizes(
        raw_model=sizes.raw_model,
        code=sizes.code,
        artifact=sizes.artifact,
        payload=stored,
        uncompressed=len(payload(coded, cfg.model, cfg.tech)),
        ratio=sum(tensor.nbytes for tensor in weights.values()) / stored,
    )
    return sizes


def quantized(
    cfg: Config,
    weights: Mapping[str, Tensor],
    hessians: Mapping[str, Tensor] | None = None,
    log: RunLog | None = None,
) -> Mapping[str, CodedTensor]:
    """What is packed: the weights as `cfg.quant` stores them, pruned to fit if it says so."""
    coded = quantize(weights, cfg.quant, hessians)
    if not cfg.quant.prune.to_fit:
        return coded
    pruning = Pruning(coded, below_int8(weights, cfg.quant), cfg.quant.prune.codes)
    target = cfg.budget.artifact_bytes - code_bytes(cfg.tech, cfg.quant.codec) - cfg.quant.prune.margin_bytes
    fitted = prune_to_fit(pruning, lambda tensors: len(pack(tensors, cfg.model, cfg.quant, cfg.tech)), target)
    if log and fitted:
        log.pruned(fitted[1], pruning.most)
    elif log:
        log.warning(f"zeroing all {pruning.most:,} codes that may go does not bring the artifact under the cap")
    return fitted[0] if fitted else coded
