"""Composition of a `Config` from overrides. Besides golf/train.py, this is the only file that imports Hydra."""

from __future__ import annotations

import copy
import dataclasses
import difflib
import functools
import itertools
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

from golf.errors import GolfError
from golf.paths import ROOT
from golf.registry import technique_types
from golf.settings import config as schema
from golf.settings import hardware
from golf.settings.ablation import add_one, leave_one_out
from golf.settings.config import Config, RulesConfig, techniques
from golf.settings.consistency import check, check_rules, warnings
from golf.settings.dropping import drop

CONF_DIR = str(ROOT / "conf")
COMPOSITION_ERRORS = (HydraException, OmegaConfBaseException, ValueError)
SWEEPER = "hydra_plugins.golf_sweeper.GolfSweeper"
SUBMITTER = "hydra_plugins.golf_submitter.GolfSubmitter"
HYDRA_FLAGS = {
    *("--help", "--hydra-help", "--version", "--cfg", "--resolve", "--package", "--run", "--multirun", "--info"),
    *("--shell-completion", "--config-path", "--config-name", "--config-dir", "--experimental-rerun"),
}
RECORD_DIM, RECORD_HEAD_DIM = 512, 64  # channels of the residual stream and of a head in the public baseline


def _register() -> None:
    """Register the schemas, golf's Hydra plugins and the resolvers of conf/.

    The value of a resolver depends on the configuration and the hardware alone, so that one command is always one
    variant.
    """
    store = ConfigStore.instance()
    store.store(name="config_schema", node=Config)
    store.store(group="hydra/launcher", name="golf", node={"_target_": "hydra_plugins.golf_launcher.GolfLauncher"})
    store.store(group="hydra/launcher", name="golf_submit", node={"_target_": SUBMITTER})
    store.store(group="hydra/sweeper", name="golf", node={"_target_": SWEEPER, "max_batch_size": None, "params": None})
    store.store(group="rules", name="rules_schema", node=RulesConfig)  # `rules_named` composes this group alone
    OmegaConf.register_new_resolver("default_choice", hardware.default_choice, replace=True)
    OmegaConf.register_new_resolver("steps", _scaled_steps, replace=True)
    OmegaConf.register_new_resolver("width", _scaled_width, replace=True)
    OmegaConf.register_new_resolver("head_channels", _scaled_head_channels, replace=True)
    OmegaConf.register_new_resolver("decay", _scaled_decay, replace=True)
    OmegaConf.register_new_resolver("sum", lambda *terms: round(sum(terms), 12), replace=True)
    OmegaConf.register_new_resolver("on_cpu", lambda value: None if hardware.detect().gpus else value, replace=True)
    for resolver in (leave_one_out, add_one):
        OmegaConf.register_new_resolver(resolver.__name__, functools.partial(_drops, resolver), replace=True)


@functools.cache
def register_techniques() -> None:
    """Register the schemas of the `tech` group. Call it before composing with techniques; it imports torch."""
    for name, kind in technique_types().items():
        ConfigStore.instance().store(group="tech", name=f"{name}_schema", node=kind)


def _scaled_steps(record_steps: int, *, _root_: DictConfig) -> int:
    """Resolve `${steps:1200}`: steps of a record run, in proportion to the steps expected at this scale."""
    return max(1, round(record_steps * _root_.scale.step_ratio))


def _scaled_width(record_width: int, *, _root_: DictConfig) -> int:
    """Resolve `${width:992}`: channels chosen for model_dim 512, in proportion to the model_dim of this run."""
    return max(1, round(record_width * _root_.model.model_dim / RECORD_DIM))


def _scaled_head_channels(record_channels: int, *, _root_: DictConfig) -> int:
    """Resolve `${head_channels:16}`: channels of a head of 64, in proportion to this run's heads; an even number."""
    head_dim = _root_.model.model_dim / _root_.model.num_heads
    return max(2, 2 * round(record_channels * head_dim / RECORD_HEAD_DIM / 2))


def _drops(ablation: Callable[[Config], list[list[str]]], *, _root_: DictConfig) -> str:
    """Resolve `${leave_one_out:}` and `${add_one:}`: the values of `drop` that a sweep runs through."""
    node = copy.deepcopy(_root_)  # a resolver must not change the configuration that Hydra is composing
    with read_write(node), open_dict(node):
        del node["hydra"]
    return ",".join(f"[{','.join(names)}]" for names in ablation(settled_config(node)[0]))


def _scaled_decay(record_decay: float, *, _root_: DictConfig) -> float:
    """Resolve `${decay:0.997}`: an average over 1 / (1 - decay) steps of a record run, shortened like `steps`."""
    return max(0.0, 1.0 - (1.0 - record_decay) / _root_.scale.step_ratio)


_register()


def with_scale(overrides: Sequence[str]) -> list[str]:
    """Return `overrides` with the `scale=` of this machine added if they name none."""
    # conf/config.yaml cannot compute the scale itself: `data` reads it there, and Hydra hands on no computed choice.
    if any(re.match(r"[+]{0,2}scale=", o) for o in overrides):
        return list(overrides)
    return [*overrides, f"scale={hardware.default_choice('scale')}"]


def completed(overrides: Sequence[str]) -> list[str]:
    """Return `overrides` for Hydra: with a scale, and with `sweep=` for `+sweep=`, since the defaults list names it."""
    return [re.sub(r"^\++sweep=", "sweep=", o) for o in with_scale(overrides)]


def sweep_label(overrides: Sequence[str]) -> str:
    """Return a sweep's name: the file that `sweep=` names, else the settings that vary. Empty if Hydra cannot parse."""
    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
    except HydraException:
        return ""
    named = [str(o.value()) for o in parsed if o.key_or_group == "sweep"]
    return "-".join(named or sorted(o.key_or_group.rpartition(".")[2] for o in parsed if o.is_sweep_override()))


def compose(overrides: Sequence[str] = ()) -> Config:
    """Return the configuration that `python golf/train.py <overrides>` would run, settled and checked.

    `overrides` are Hydra's: `model=11l`, `optim.matrix_lr=0.02`. Raises `GolfError` with what to write instead.
    """
    register_techniques()
    try:
        GlobalHydra.instance().clear()
        with initialize_config_dir(CONF_DIR, version_base="1.3"):
            node = hydra_compose("config", overrides=completed(overrides))
    except COMPOSITION_ERRORS as error:
        raise GolfError(explain(error)) from error
    return settled_config(node)[0]


def rules_selected(overrides: Sequence[str]) -> RulesConfig:
    """Return the rules that a command line selects; the first of several that it sweeps over."""
    option = next((o.partition("=")[2] for o in reversed(overrides) if o.startswith("rules=")), "house")
    return rules_named(option.split(",")[0], [o for o in overrides if o.startswith("rules.") and "," not in o])


def rules_named(option: str, overrides: Sequence[str] = ()) -> RulesConfig:
    """Return the rules that `rules=<option>` selects. Raises `GolfError` for an unknown option or setting.

    Only this group is composed, because a report needs no technique and should not import torch.
    """
    known = sorted(path.stem for path in Path(CONF_DIR, "rules").glob("*.yaml"))
    if option not in known:
        raise GolfError(f"rules={option} does not exist; {_suggest(option, known)}")
    try:
        GlobalHydra.instance().clear()
        with initialize_config_dir(CONF_DIR, version_base="1.3"):
            rules = OmegaConf.to_object(hydra_compose(f"rules/{option}", overrides=list(overrides)).rules)
    except COMPOSITION_ERRORS as error:
        raise GolfError(explain(error)) from error
    assert isinstance(rules, RulesConfig)
    check_rules(rules)
    return rules


def settled_config(node: DictConfig) -> tuple[Config, list[str]]:
    """Return the typed, settled and checked configuration of a composed node, and remarks to print.

    Remarks name settings without effect, choices for this machine, and doubtful combinations.
    """
    _refuse_unknown(node, Config)
    try:
        cfg = OmegaConf.to_object(node)
    except OmegaConfBaseException as error:
        raise GolfError(explain(error)) from error
    assert isinstance(cfg, Config)
    left_over = _keep_selected(cfg)
    drop(cfg)
    chosen = [f"chosen for this machine: {line}" for line in hardware.settle(cfg)]
    check(cfg)
    return cfg, [*left_over, *chosen, *(f"note: {sentence}" for sentence in warnings(cfg))]


def _keep_selected(cfg: Config) -> list[str]:
    """Keep the selected techniques, in the order of application. Return a remark for each of the others."""
    known = technique_types()
    if unknown := [name for name in cfg.tech if name not in known]:
        raise GolfError(f"There is no technique {unknown[0]}; {_suggest(unknown[0], sorted(known))}")
    # An experiment that sets tech.bigram.dim leaves a plain dict when the command line selects other techniques.
    left_over = [name for name, settings in cfg.tech.items() if not isinstance(settings, known[name])]
    for name in left_over:
        del cfg.tech[name]
    cfg.tech = {technique.name: technique for technique in techniques(cfg)}
    return [f"note: settings of tech.{name} are not used, it is not selected" for name in left_over]


def _refuse_unknown(node: DictConfig, kind: type, prefix: str = "") -> None:
    """Raise `GolfError` for a key that the schema lacks: Hydra accepts `+group.typo=1` even on a typed node."""
    known = {f.name: f for f in dataclasses.fields(kind)}
    for key in map(str, node):
        if key not in known:
            raise GolfError(_unknown_setting(f"{prefix}{key}", list(known)))
        if dataclasses.is_dataclass(group := known[key].default_factory) and OmegaConf.is_dict(node[key]):
            _refuse_unknown(node[key], group, f"{prefix}{key}.")


def explain(error: BaseException) -> str:
    """Return one sentence for an error of Hydra or OmegaConf: what is wrong and what to write instead."""
    # Both put what went wrong into the text of their errors only. The expressions below fit the texts of hydra-core
    # 1.3.8 with omegaconf 2.3 (pyproject.toml pins them); tests/settings/test_composition.py fails if a text changes.
    causes = error, error.__cause__, error.__context__
    if ours := [e for e in causes if isinstance(e, GolfError)]:  # a resolver of golf's own refused
        return str(ours[0])
    text = "\n".join(str(e) for e in causes if e)
    if match := re.search(r"Key '\S+' (?:is )?not in '?(\w+)'?[\s\S]*?full_key: (\S+)", text):
        kind, full_key = match.groups()
        return _unknown_setting(full_key, [f.name for f in dataclasses.fields(_schema_named(kind))])
    if match := re.search(r"Could not load 'tech/(\w+)'", text):
        return f"There is no technique {match[1]}; {_suggest(match[1], sorted(technique_types()))}"
    options = r"Could not find '(\w+)/([^']+)'[\s\S]*?Available options in '\w+':([\s\S]*?)Config search"
    if match := re.search(options, text):
        group, option, listing = match.groups()
        known = [name for name in listing.split() if not name.endswith("_schema")]
        return f"{group}={option} does not exist; {_suggest(option, known)}"
    if match := re.search(r"(?:Value|Cannot convert) '(.*)' .*?(?:to|type) '?(\w+)'?[\s\S]*?full_key: (\S+)", text):
        value, wanted, full_key = match.groups()
        article = "an" if wanted == "Integer" else "a"
        return f"{full_key} takes {article} {wanted.lower()}, not '{value}'."
    if match := re.search(r"(?:Ambiguous value for argument|Sweep parameters) '(.+?)'(?: requires|\n)", text):
        return f"{match[1]} stands for several runs: add -m (--multirun); a list is written in brackets, a=[1,2]."
    if match := re.search(r"field '(\S+)' is not Optional", text):
        return f"{match[1]} cannot be null: give it a value, or leave {match[1]} out for its default."
    words = [e.override for e in causes if isinstance(e, OverrideParseException)]
    if words and "=" not in words[0]:
        key, _, value = words[0].partition(" ")
        return f"'{words[0]}' has no '=': write settings as key=value without spaces, as in {_example(key, value)}."
    if match := re.search(r"is not a ListConfig[\s\S]*?full_key: (\S+)", text):
        return f"{match[1]} takes a list: write {match[1]}=[…] with commas between."
    return f"The overrides cannot be composed: {' '.join(text.split())}"


def refuse_unknown_flags(arguments: Sequence[str]) -> None:
    """Raise `GolfError` for a word with two dashes that is no flag of Hydra's."""
    for word, following in itertools.pairwise([*arguments, ""]):
        flag, _, value = word.partition("=")
        # Flags can be shortened: --multi is --multirun.
        if not flag.startswith("--") or any(known.startswith(flag) for known in HYDRA_FLAGS):
            continue
        if not value and "=" not in following and not following.startswith("-"):
            value = following
        raise GolfError(
            f"There is no flag {flag}: settings are written as key=value without dashes, as in "
            f"{_example(flag.lstrip('-'), value)}."
        )


def _example(word: str, value: str = "") -> str:
    """Return an override of the setting that `word` seems to mean, such as `optim.matrix_lr=0.02` for `matrix-lr`."""
    key, known = word.replace("-", "_"), _settings_by_name()
    if key in known.values():
        return f"{key}={value or 'VALUE'}"
    if close := difflib.get_close_matches(key.rpartition(".")[2], list(known), n=1, cutoff=0.8):
        return f"{known[close[0]]}={value or 'VALUE'}"
    return "optim.matrix_lr=0.02"


def _settings_by_name() -> dict[str, str]:
    """Return the full keys of settings by their last part, such as `optim.matrix_lr` by `matrix_lr`."""
    found: dict[str, str] = {}
    for declared in dataclasses.fields(Config):
        if dataclasses.is_dataclass(group := declared.default_factory):
            found |= {inner.name: f"{declared.name}.{inner.name}" for inner in dataclasses.fields(group)}
    return found | {declared.name: declared.name for declared in dataclasses.fields(Config)}


def _schema_named(kind: str) -> type:
    of_techniques = {technique.__name__: technique for technique in technique_types().values()}
    return getattr(schema, kind, None) or of_techniques.get(kind, Config)


def _unknown_setting(full_key: str, known: list[str]) -> str:
    if (match := re.match(r"tech\.(\w+)$", full_key)) and match[1] in technique_types():
        return f"Technique {match[1]} is not selected: add it with +tech={match[1]}."
    if elsewhere := _settings_by_name().get(full_key):
        return f"There is no setting {full_key}; did you mean {elsewhere}?"
    return f"There is no setting {full_key}; {_suggest(full_key.rpartition('.')[2], known)}"


def _suggest(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]}? (Known: {', '.join(known)}.)"
    return f"known are {', '.join(known)}."
