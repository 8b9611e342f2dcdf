"""From trained weights to the artifact file, measured and logged."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from golf.artifact.code import code_bytes
from golf.artifact.container import pack, payload
from golf.config import Config
from golf.loop.fitting import quantized
from golf.model.checkpoint import weights_to_bytes
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
