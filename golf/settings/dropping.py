"""`drop=[name]`: removal by name of a technique or a plain setting that an experiment switches on."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from golf.errors import GolfError
from golf.settings.config import TENSOR_CLASSES, Config

OFF: dict[str, dict[str, Any]] = {  # name → settings and their values without it; a function computes from the Config
    "weight_decay": {"optim.muon_wd": 0.0, "optim.adam_wd": 0.0, "optim.embed_wd": None, "optim.head_wd": None},
    "grad_clip": {"optim.grad_clip_norm": 0.0},
    "momentum_warmup": {"optim.muon_momentum_warmup_steps": 0},
    "unet_skips": {"model.unet_skips": False},
    "warmdown": {"schedule.warmdown_iters": 0, "schedule.warmdown_fraction": 0.0},
    "loader": {"data.loader": "sequential"},
    "shard_order": {"data.shard_order": []},
    "parallel_muon": {"optim.muon": "sharded"},
    "fp16_embed": {"quant.embed.format": "int8"},
    "gptq": {f"quant.{key}.rounding": "nearest" for key in TENSOR_CLASSES},
    "rotation": {f"quant.{key}.rotation": "none" for key in TENSOR_CLASSES},
    "pruning": {"quant.prune.fraction": 0.0, "quant.prune.to_fit": False},
    "lqer": {"quant.lqer.rank": 0},
    "sliding": {"eval.stride": 0},
    "ttt": {"eval.ttt.method": "off"},
    "gqa": {"model.num_kv_heads": lambda cfg: cfg.model.num_heads},
}


def drop(cfg: Config) -> None:
    """Remove everything that `cfg.drop` names from `cfg` in place. Raises `GolfError` for a name that is not on."""
    for name in cfg.drop:
        if name in cfg.tech:
            del cfg.tech[name]
        elif name in OFF and is_on(cfg, name):
            for key, value in OFF[name].items():
                *groups, field = key.split(".")
                setattr(functools.reduce(getattr, groups, cfg), field, _value(cfg, value))
        else:
            raise GolfError(f"drop=[{name}]: it is not switched on. On are {', '.join(droppable(cfg))}.")


def is_on(cfg: Config, name: str) -> bool:
    """Tell whether a plain setting of `OFF` is switched on."""
    return any(_get(cfg, key) != _value(cfg, value) for key, value in OFF[name].items())


def droppable(cfg: Config) -> list[str]:
    """Return the names of everything that `drop` could remove from `cfg`."""
    return sorted([*cfg.tech, *(name for name in OFF if is_on(cfg, name))])


def _get(cfg: Config, key: str) -> Any:
    return functools.reduce(getattr, key.split("."), cfg)


def _value(cfg: Config, value: Any | Callable[[Config], Any]) -> Any:
    return value(cfg) if callable(value) else value
