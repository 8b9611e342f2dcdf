"""From overrides to a `Config`: the edge where Hydra and OmegaConf are known. Nothing below imports them."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Sequence

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from golf import config as schema
from golf import hardware
from golf.config import Config, check
from golf.errors import GolfError
from golf.paths import ROOT

CONF_DIR = str(ROOT / "conf")
COMPOSITION_ERRORS = (HydraException, OmegaConfBaseException, ValueError)
RECORD_DIM = 512


def _register() -> None:
    """Schemas for the groups and the resolvers that YAML may use. Pure, so that identity is stable."""
    store = ConfigStore.instance()
    store.store(name="config_schema", node=Config)
    for group in ("model", "optim", "schedule", "data", "quant", "eval", "budget", "launch"):
        node = getattr(schema, f"{group.capitalize()}Config")
        store.store(group=group, name=f"{group}_schema", node=node)
    OmegaConf.register_new_resolver("default_choice", hardware.default_choice, replace=True)
    OmegaConf.register_new_resolver("steps", _scaled_steps, replace=True)
    OmegaConf.register_new_resolver("width", _scaled_width, replace=True)


def _scaled_steps(record_steps: int, *, _root_: DictConfig) -> int:
    """`${steps:1200}`: a number of steps of the record, shrunk to the steps expected at this scale."""
    return max(1, round(record_steps * _root_.scale.step_ratio))


def _scaled_width(record_width: int, *, _root_: DictConfig) -> int:
    """`${width:992}`: a width chosen for model_dim 512, in proportion to the model_dim of this run."""
    return max(1, round(record_width * _root_.model.model_dim / RECORD_DIM))


_register()


def with_scale(overrides: Sequence[str]) -> list[str]:
    """`overrides` plus `scale=<what fits this machine>` if they name none (Hydra cannot compute it late enough)."""
    if any(re.match(r"[+]{0,2}scale=", o) for o in overrides):
        return list(overrides)
    return [*overrides, f"scale={hardware.default_choice('scale')}"]


def compose(overrides: Sequence[str] = ()) -> Config:
    """The configuration that `python golf/train.py <overrides>` would run, `auto` fields settled and checked.

    `overrides` are Hydra's: `model=11l`, `optim.matrix_lr=0.02`. Raises `GolfError` for anything it cannot compose.
    """
    try:
        GlobalHydra.instance().clear()
        with initialize_config_dir(CONF_DIR, version_base="1.3"):
            node = hydra_compose("config", overrides=with_scale(overrides))
    except COMPOSITION_ERRORS as error:
        raise GolfError(explain(error)) from error
    return settled_config(node)[0]


def settled_config(node: DictConfig) -> tuple[Config, list[str]]:
    """Typed, settled and checked configuration from a composed node, and what was chosen for this machine."""
    _refuse_unknown(node, Config)
    try:
        cfg = OmegaConf.to_object(node)
    except OmegaConfBaseException as error:
        raise GolfError(explain(error)) from error
    assert isinstance(cfg, Config)
    chosen = hardware.settle(cfg)
    check(cfg)
    return cfg, chosen


def _refuse_unknown(node: DictConfig, kind: type, prefix: str = "") -> None:
    """Hydra lets `+group.typo=1` through even on a typed node; a setting that nothing reads is an error here."""
    known = {f.name: f for f in dataclasses.fields(kind)}
    for key in map(str, node):
        if key not in known:
            raise GolfError(_unknown_setting(f"{prefix}{key}", list(known)))
        if dataclasses.is_dataclass(group := known[key].default_factory) and OmegaConf.is_dict(node[key]):
            _refuse_unknown(node[key], group, f"{prefix}{key}.")


def explain(error: BaseException) -> str:
    """One sentence for an error of Hydra or OmegaConf: what is wrong and what to write instead."""
    text = "\n".join(str(e) for e in (error, error.__cause__, error.__context__) if e)
    if match := re.search(r"Key '\S+' (?:is )?not in '?(\w+)'?[\s\S]*?full_key: (\S+)", text):
        kind, full_key = match.groups()
        return _unknown_setting(full_key, [*getattr(schema, kind, Config).__dataclass_fields__])
    options = r"Could not find '(\w+)/([^']+)'[\s\S]*?Available options in '\w+':([\s\S]*?)Config search"
    if match := re.search(options, text):
        group, option, listing = match.groups()
        known = [name for name in listing.split() if not name.endswith("_schema")]
        return f"{group}={option} does not exist; {_suggest(option, known)}"
    if match := re.search(r"(?:Value|Cannot convert) '(.*)' .*?(?:to|type) '?(\w+)'?[\s\S]*?full_key: (\S+)", text):
        value, wanted, full_key = match.groups()
        article = "an" if wanted == "Integer" else "a"
        return f"{full_key} takes {article} {wanted.lower()}, not '{value}'."
    if match := re.search(r"is not a ListConfig[\s\S]*?full_key: (\S+)", text):
        return f"{match[1]} takes a list: write {match[1]}=[…] with commas between."
    return f"The overrides cannot be composed: {' '.join(text.split())}"


def _unknown_setting(full_key: str, known: list[str]) -> str:
    return f"There is no setting {full_key}; {_suggest(full_key.rpartition('.')[2], known)}"


def _suggest(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]}? (Known: {', '.join(known)}.)"
    return f"known are {', '.join(known)}."
