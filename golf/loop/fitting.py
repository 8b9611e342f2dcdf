"""What of the weights is packed: as the configuration stores them, and pruned until they fit if it says so."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from golf.artifact.container import pack
from golf.config import Config
from golf.quant.formats import CodedTensor
from golf.quant.policy import below_int8, quantize
from golf.quant.pruning import Pruning, prune_to_fit
from golf.report.trainlog import TrainLog


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
