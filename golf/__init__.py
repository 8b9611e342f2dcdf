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

Ids are int64 `[B, T]`; `model.logits(input_ids)` gives `[B, T, V]`. Mistakes that a user can correct raise
`golf.GolfError`. Nothing heavy is imported before it is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from golf.idea_folders import load_ideas
from golf.products import fill_in
from golf.registry import load_techniques_with

if TYPE_CHECKING:
    from golf.artifact.container import load as load
    from golf.artifact.container import pack as pack
    from golf.artifact.quant.policy import dequantize as dequantize
    from golf.artifact.quant.policy import quantize as quantize
    from golf.errors import GolfError as GolfError
    from golf.launch.launcher import train_and_score as train_and_score
    from golf.settings.composition import compose as compose
    from golf.settings.config import Config as Config
    from golf.training.data.dataset import open_dataset as open_dataset
    from golf.training.loop.calibration import calibrate as calibrate
    from golf.training.loop.tuning import tune as tune
    from golf.training.model.build import build_model as build_model
    from golf.training.optim.groups import build_optimizer as build_optimizer
    from golf.training.scoring.scorer import score as score

# Names are looked up when they are first used: importing torch alone takes two seconds.
_MODULES = {
    "golf.artifact.container": ("load", "pack"),
    "golf.artifact.quant.policy": ("dequantize", "quantize"),
    "golf.errors": ("GolfError",),
    "golf.launch.launcher": ("train_and_score",),
    "golf.settings.composition": ("compose",),
    "golf.settings.config": ("Config",),
    "golf.training.data.dataset": ("open_dataset",),
    "golf.training.loop.calibration": ("calibrate",),
    "golf.training.loop.tuning": ("tune",),
    "golf.training.model.build": ("build_model",),
    "golf.training.optim.groups": ("build_optimizer",),
    "golf.training.scoring.scorer": ("score",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}
__all__ = sorted(_MODULE_OF)

# The registry lies below the techniques and must not import them, so it is told here where they are.
load_techniques_with(load_ideas)
load_techniques_with(lambda: importlib.import_module("golf.training.techniques"))
# Likewise the core must not import the products beside it.
fill_in()


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from golf.run.environment import golf_version

        return golf_version().partition(",")[0]
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'golf' has no attribute '{name}'")
    value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    # The next look-up finds the name itself and does not come here again.
    globals()[name] = value
    return value
