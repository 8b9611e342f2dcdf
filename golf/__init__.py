"""Golf: the best language model in 16,000,000 bytes, as parts to put together.

    cfg = golf.compose(["model=11l", "scale=laptop"])       # Config: typed, settled, checked
    model = golf.build_model(cfg)                           # model(input_ids, target_ids) → mean loss in nats
    optimizer = golf.build_optimizer(cfg, model)            # .zero_grad(), .step(lr_multiplier, momentum)
    coded = golf.quantize(model.state_dict(), cfg.quant)    # {name: CodedTensor}; GPTQ wants golf.calibrate(…)
    content = golf.pack(coded, cfg.model, cfg.quant, cfg.tech)  # bytes of an artifact file
    artifact = golf.load("artifact.golf")                   # .model (shape), .tech, .state_dict() (dequantized)
    model.load_state_dict(artifact.state_dict())
    golf.score(model, cfg)                                  # Score: val_loss (nats/token), val_bpb, tokens, bytes
    golf.train_and_score(cfg)                               # the whole run → Result, RunFolder

Ids are int64 `[B, T]`; `model.logits(input_ids)` gives `[B, T, V]`. What a user can mend raises `golf.GolfError`.
Nothing heavy is imported before it is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from golf.artifact.container import load, pack
    from golf.composition import compose
    from golf.config import Config
    from golf.data.dataset import open_dataset
    from golf.errors import GolfError
    from golf.launch.launcher import train_and_score
    from golf.loop.calibration import calibrate
    from golf.model.build import build_model
    from golf.optim.groups import build_optimizer
    from golf.quant.policy import dequantize, quantize
    from golf.scoring.scorer import score

_HOMES = {
    "Config": "golf.config",
    "GolfError": "golf.errors",
    "build_model": "golf.model.build",
    "build_optimizer": "golf.optim.groups",
    "calibrate": "golf.loop.calibration",
    "compose": "golf.composition",
    "dequantize": "golf.quant.policy",
    "load": "golf.artifact.container",
    "open_dataset": "golf.data.dataset",
    "pack": "golf.artifact.container",
    "quantize": "golf.quant.policy",
    "score": "golf.scoring.scorer",
    "train_and_score": "golf.launch.launcher",
}

__all__ = [
    "Config",
    "GolfError",
    "build_model",
    "build_optimizer",
    "calibrate",
    "compose",
    "dequantize",
    "load",
    "open_dataset",
    "pack",
    "quantize",
    "score",
    "train_and_score",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'golf' has no attribute '{name}'")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
