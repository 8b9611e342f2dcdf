"""`drop=[name]`: removal by name of a technique or a plain setting that an experiment switches on."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from typing import Any

from golf.errors import GolfError
from golf.settings.config import TENSOR_CLASSES, Config, is_packed, tensor_classes

OFF: dict[str, dict[str, Any]] = {  # name → settings and their values without it; a function computes from the Config
    "weight_decay": {
        "optim.muon_wd": 0.0,
        "optim.adam_wd": 0.0,
        "optim.embed_wd": None,
        "optim.head_wd": None,
        "schedule.muon_wd_taper_final": 1.0,
        "schedule.weight_decay_factors": [],
        "schedule.weight_decay_shares": [],
    },
    "decay_factors": {"schedule.weight_decay_factors": [], "schedule.weight_decay_shares": []},
    "decay_taper": {"schedule.muon_wd_taper_final": 1.0},
    "row_normalize": {"optim.muon_row_normalize": False},
    "polar_express": {"optim.muon_coefficients": "quintic"},
    "momentum_dtype": {"optim.muon_momentum_dtype": "fp32"},
    "moment_dtype": {"optim.adam_moment_dtype": "parameter"},
    "grad_clip": {"optim.grad_clip_norm": 0.0, "optim.clip_before_reduction": False},
    "momentum_warmup": {"optim.muon_momentum_warmup_steps": 0},
    "unet_skips": {"model.unet_skips": False},
    "warmdown": {"schedule.warmdown_iters": 0, "schedule.warmdown_fraction": 0.0},
    "loader": {"data.loader": "sequential"},
    "documents": {
        "model.within_documents": False,
        "eval.documents": False,
        # Packed rows hold several documents, which only attention within documents keeps apart.
        "data.loader": lambda cfg: "sequential" if is_packed(cfg) else cfg.data.loader,
    },
    "shard_order": {"data.shard_order": []},
    "parallel_muon": {"optim.muon": "sharded", "optim.clip_before_reduction": False},
    "fp16_embed": {"quant.embed.format": "int8"},
    # Clip importance, column steps, formats by sensitivity and drift follow the inputs of GPTQ and go with it.
    "gptq": {
        **{f"quant.{key}.rounding": "nearest" for key in TENSOR_CLASSES},
        **{f"quant.{key}.clip_importance": 0.0 for key in TENSOR_CLASSES},
        **{f"quant.{key}.columns": 0.0 for key in TENSOR_CLASSES},
        **{f"quant.{key}.finer_columns": 0 for key in TENSOR_CLASSES},
        "quant.sensitive.top": 0,
        "quant.clip_sensitivity": 0.0,
        "quant.gptq.drift": False,
    },
    "column_steps": {f"quant.{key}.columns": 0.0 for key in TENSOR_CLASSES},
    "drift": {"quant.gptq.drift": False},
    "finer_columns": {f"quant.{key}.finer_columns": 0 for key in TENSOR_CLASSES},
    "rotation": {f"quant.{key}.rotation": "none" for key in TENSOR_CLASSES},
    "pruning": {"quant.prune.fraction": 0.0, "quant.prune.to_fit": False, "quant.prune.weights": 0.0},
    "clip_importance": {f"quant.{key}.clip_importance": 0.0 for key in TENSOR_CLASSES},
    "clip_sensitivity": {"quant.clip_sensitivity": 0.0},
    "fp16_control": {"quant.control_format": "fp32"},
    "tuning": {"quant.tune.steps": 0},
    "lqer": {"quant.lqer.rank": 0},
    "sensitive": {"quant.sensitive.top": 0},
    "sliding": {"eval.stride": 0},
    "ttt": {"eval.ttt.method": "off", "eval.ttt.lora_chunks": []},
    "short_chunks": {"eval.ttt.lora_chunks": []},
    "tilt": {"eval.tilt.method": "off"},
    "gqa": {"model.num_kv_heads": lambda cfg: cfg.model.num_heads},
}


def drop(cfg: Config) -> None:
    """Remove everything that `cfg.drop` names from `cfg` in place. Raises `GolfError` for a name that is not on."""
    for name in cfg.drop:
        if name in cfg.tech:
            del cfg.tech[name]
            _leave_format(cfg, name)
        elif name in OFF and is_on(cfg, name):
            switch_off(cfg, name)
        else:
            raise GolfError(f"drop=[{name}]: it is not switched on. On are {', '.join(droppable(cfg))}.")


def _leave_format(cfg: Config, name: str) -> None:
    """Store as int8 what is stored in the number format of the technique `name`, in place."""
    for how in tensor_classes(cfg.quant).values():
        how.format = "int8" if how.format == name else how.format
    for pattern, rule in cfg.quant.by_name.items():
        settings = rule if isinstance(rule, dict) else {"format": rule}
        if settings.get("format") == name:
            cfg.quant.by_name[pattern] = {**settings, "format": "int8"}


def switch_off(cfg: Config, name: str, keys: Collection[str] | None = None) -> None:
    """Set the plain setting `name` of `OFF`, or only those of its `keys`, to what it is without it, in place."""
    for key, value in OFF[name].items():
        if keys is None or key in keys:
            *groups, field = key.split(".")
            setattr(functools.reduce(getattr, groups, cfg), field, _value(cfg, value))


def keys_that_are_on(cfg: Config, name: str) -> list[str]:
    """Return the settings of a row of `OFF` that differ from what they are without it."""
    return [key for key, value in OFF[name].items() if _get(cfg, key) != _value(cfg, value)]


def is_on(cfg: Config, name: str) -> bool:
    """Tell whether a plain setting of `OFF` is switched on."""
    return bool(keys_that_are_on(cfg, name))


def droppable(cfg: Config) -> list[str]:
    """Return the names of everything that `drop` could remove from `cfg`."""
    return sorted([*cfg.tech, *(name for name in OFF if is_on(cfg, name))])


def _get(cfg: Config, key: str) -> Any:
    return functools.reduce(getattr, key.split("."), cfg)


def _value(cfg: Config, value: Any | Callable[[Config], Any]) -> Any:
    return value(cfg) if callable(value) else value
