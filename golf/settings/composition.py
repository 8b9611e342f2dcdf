"""Composition of a `Config` from overrides. Besides golf/train.py, this is the only file that imports Hydra."""

from __future__ import annotations

import copy
import dataclasses
import functools
import io
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ValueType
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from golf.errors import GolfError
from golf.idea_folders import FAULTY_VALUES, ONCE_BUILT_IN, idea_of, ideas, load_ideas, use_ideas
from golf.paths import ROOT
from golf.registry import technique_types
from golf.settings import hardware
from golf.settings.ablation import add_one, interaction, leave_one_out
from golf.settings.bundles import SETTING as VARIANTS
from golf.settings.config import Config, RulesConfig, techniques
from golf.settings.consistency import check, check_values, warnings
from golf.settings.dropping import drop
from golf.settings.fields import check_fields
from golf.settings.mistakes import (
    OTHER_ENTRY,
    explain,
    flags_first,
    refuse_null_groups,
    refuse_odd_files,
    refuse_unsupported,
    unknown_setting,
)
from golf.settings.names import no_technique, suggestion, technique_settings
from golf.settings.usage import options_of

CONF_DIR = str(ROOT / "conf")
COMPOSITION_ERRORS = (HydraException, OmegaConfBaseException, ValueError, YAMLError)
SWEEPER = "hydra_plugins.golf_sweeper.GolfSweeper"
SEARCHER = "hydra_plugins.golf_optuna.OptunaSweeper"
# hydra.sweeper.trials and so on: runs of the search, how many of them at once, and rounds of the verdict at most.
SEARCH = {"trials": 20, "at_once": 1, "sampler_seed": 0, "verdict_seeds": 5, "params": None}
SUBMITTER = "hydra_plugins.golf_submitter.GolfSubmitter"
OTHER_WORDS = (  # overrides that others write, and what golf makes of them; empty: nothing
    (r"^\++(sweep|experiment)=", r"\1="),
    (r"^\+*hydra/launcher=joblib$", "hydra/launcher=golf"),
    (r"^\+*hydra\.launcher\.n_jobs=(\d+)$", r"launch.jobs=\1"),
    (r"^\+*hydra\.launcher\.n_jobs=-1$", ""),
)
RECORD_DIM, RECORD_HEAD_DIM = 512, 64  # channels of the residual stream and of a head in the public baseline


def _register() -> None:
    """Register the schemas, golf's Hydra plugins and the resolvers of conf/.

    The value of a resolver depends on the configuration and the hardware alone, so that one command is always one
    variant.
    """
    store = ConfigStore.instance()
    schema = OmegaConf.structured(Config)
    # Patterns of names are new keys, which Hydra else takes with a + alone.
    OmegaConf.set_struct(schema.quant.by_name, False)
    store.store(name="config_schema", node=schema)
    store.store(group="hydra/launcher", name="golf", node={"_target_": "hydra_plugins.golf_launcher.GolfLauncher"})
    store.store(group="hydra/launcher", name="golf_submit", node={"_target_": SUBMITTER})
    grid = {"_target_": SWEEPER, "max_batch_size": None, "params": None, "variants": None}
    store.store(group="hydra/sweeper", name="golf", node=grid)
    store.store(group="hydra/sweeper", name="optuna", node={"_target_": SEARCHER, **SEARCH})
    store.store(group="rules", name="rules_schema", node=RulesConfig)  # `rules_named` composes this group alone
    OmegaConf.register_new_resolver("default_choice", hardware.default_choice, replace=True)
    OmegaConf.register_new_resolver("steps", _scaled_steps, replace=True)
    OmegaConf.register_new_resolver("seconds", _scaled_seconds, replace=True)
    OmegaConf.register_new_resolver("rate", _scaled_rate, replace=True)
    OmegaConf.register_new_resolver("warmdown", _scaled_warmdown, replace=True)
    OmegaConf.register_new_resolver("width", _scaled_width, replace=True)
    OmegaConf.register_new_resolver("head_channels", _scaled_head_channels, replace=True)
    OmegaConf.register_new_resolver("decay", _scaled_decay, replace=True)
    OmegaConf.register_new_resolver("where", _where, replace=True)
    # 5/4 of a length that a scale changes: ${part:${data.train_seq_len},5,4}.
    OmegaConf.register_new_resolver("part", lambda whole, over, under: whole * over // under, replace=True)
    # Without rounding 0.1 + 0.2 would put 0.30000000000000004 into the configuration and its id.
    OmegaConf.register_new_resolver("sum", lambda *terms: round(sum(terms), 12), replace=True)
    OmegaConf.register_new_resolver("on_cpu", lambda value: None if hardware.detect().gpus else value, replace=True)
    for resolver in (leave_one_out, add_one, interaction):
        OmegaConf.register_new_resolver(resolver.__name__, functools.partial(_drops, resolver), replace=True)


def register_techniques() -> None:
    """Register the schemas of the `tech` group. Call it before composing with techniques; it imports torch."""
    # The variable may have been set after the techniques were imported.
    load_ideas()
    for name, kind in technique_types().items():
        if _registered.get(name) is not kind:
            ConfigStore.instance().store(group="tech", name=f"{name}_schema", node=kind)
            _registered[name] = kind
    _register_values()


_registered: dict[str, Any] = {}  # technique → its class; file of an idea's values → (path, text)


def _register_values() -> None:
    """Register the values of ideas as options of the `tech` group. A fault is named where its idea is selected."""
    for idea in ideas().values():
        path = idea.folder / f"{idea.name}.yaml"
        try:
            text = path.read_text("utf-8") if path.exists() else "{}"
            # Parsing takes longer than all the rest, and most files have not changed since the last composition.
            if _registered.get(path.name) == (path, text):
                continue
            values = OmegaConf.to_container(OmegaConf.load(io.StringIO(text)))
        except (YAMLError, OSError, UnicodeDecodeError) as error:
            values = " ".join(str(error).split())
        if not isinstance(values, dict):
            FAULTY_VALUES[idea.name] = f"{path} cannot be read as settings ({values}): write lines such as `dim: 16`."
            continue
        node = {"defaults": [f"{idea.name}_schema", "_self_"], **values}
        ConfigStore.instance().store(group="tech", name=idea.name, node=node, package=f"tech.{idea.name}")
        _registered[path.name] = (path, text)


def without_ideas(overrides: Sequence[str]) -> list[str]:
    """Look into the folders of `ideas=FOLDER` or `ideas=[FOLDER,FOLDER]`; return the other overrides."""
    if named := [match[1] for o in overrides if (match := re.fullmatch(r"\+*ideas=(.*)", o))]:
        use_ideas(part.strip("\"' ") for text in named for part in text.strip("[]").split(",") if part.strip("\"' "))
    return [o for o in overrides if not re.match(r"\+*ideas=", o)]


def _scaled_steps(record_steps: float, *, _root_: DictConfig) -> int:
    """Resolve `${steps:1200}`: steps of a record run, in proportion to the steps expected at this scale."""
    return max(1, round(record_steps * _root_.scale.step_ratio))


def _scaled_seconds(record_seconds: float, *, _root_: DictConfig) -> float:
    """Resolve `${seconds:13}`: seconds of a record run, in proportion to the clock of this scale."""
    return float(record_seconds * _root_.scale.seconds_ratio)


def _scaled_warmdown(record_steps: int, *, _root_: DictConfig) -> int:
    """Resolve `${warmdown:1200}`: steps of the baseline's warm-down, by the factor that this scale is tuned to."""
    return _scaled_steps(record_steps * _root_.scale.warmdown_ratio, _root_=_root_)


def _scaled_rate(record_rate: float, *, _root_: DictConfig) -> float:
    """Resolve `${rate:0.04}`: a learning rate of the public baseline, by the factor that this scale is tuned to."""
    # Rounded, so that 0.05 at a factor of 0.7 is 0.035 in the configuration and its id.
    return round(record_rate * _root_.scale.rate_ratio, 12)


def _scaled_width(record_width: int, *, _root_: DictConfig) -> int:
    """Resolve `${width:992}`: channels chosen for model_dim 512, in proportion to the model_dim of this run."""
    return max(1, round(record_width * _root_.model.model_dim / RECORD_DIM))


def _scaled_head_channels(record_channels: int, *, _root_: DictConfig) -> int:
    """Resolve `${head_channels:16}`: channels of a head of 64, in proportion to this run's heads; an even number."""
    # Rotary embedding turns pairs of channels, hence the even number.
    return max(2, 2 * round(record_channels * (_root_.model.model_dim / _root_.model.num_heads) / RECORD_HEAD_DIM / 2))


def _drops(ablation: Callable[[Config], list[list[str]]], *, _root_: DictConfig) -> str:
    """Resolve `${leave_one_out:}` and its like: the values of `drop` that a sweep runs through."""
    node = copy.deepcopy(_root_)  # a resolver must not change the configuration that Hydra is composing
    with read_write(node), open_dict(node):
        del node["hydra"]
    return ",".join(f"[{','.join(names)}]" for names in ablation(settled_config(node)[0]))


def _scaled_decay(record_decay: float, *, _root_: DictConfig) -> float:
    """Resolve `${decay:0.997}`: an average over 1 / (1 - decay) steps of a record run, shortened like `steps`."""
    return max(0.0, 1.0 - (1.0 - record_decay) / _root_.scale.step_ratio)


def _where(key: str, value: str, then: Any, otherwise: Any, *, _root_: DictConfig) -> Any:
    """Resolve `${where:eval.ttt.method,off,4,12}`: 4 where that setting is `off`, else 12."""
    return then if str(OmegaConf.select(_root_, key)) == value else otherwise


# Hydra has to know the schemas before it composes anything.
_register()


def completed(overrides: Sequence[str]) -> list[str]:
    """Return `overrides` for Hydra: with a scale, and with `sweep=` for `+sweep=`, since the defaults list names it.

    `+experiment=` is the habit of Hydra's users and means `experiment=`. Golf's own launcher does the work of joblib's,
    and keeps a record of the sweep.
    """
    # conf/config.yaml cannot compute the scale itself: `data` reads it there, and Hydra hands on no computed choice.
    has_scale = any(re.match(r"[+]{0,2}scale=", o) for o in overrides)
    overrides = without_ideas(overrides)
    first = [] if has_scale else [f"scale={hardware.default_choice('scale')}"]
    first += without_clock(overrides)
    for pattern, meant in OTHER_WORDS:
        overrides = [re.sub(pattern, meant, override) for override in overrides]
    return [*first, *filter(None, overrides)]


def without_clock(overrides: Sequence[str]) -> list[str]:
    """Return the override that keeps `budget=unlimited` from a scale with a clock, which comes behind that group."""
    return ["budget.train_seconds=0"] * ("budget=unlimited" in overrides)


def sweep_label(overrides: Sequence[str]) -> str:
    """Return a sweep's name: that of `name=`, the file that `sweep=` names, or the settings that vary.

    Empty if Hydra cannot parse `overrides`.
    """
    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
    except HydraException:
        return ""
    given = [str(o.value()) for o in parsed if o.key_or_group == "name" and not o.is_sweep_override()]
    named = given[-1:] or [str(o.value()) for o in parsed if o.key_or_group == "sweep"]
    named = named or ["variants"] * any(o.key_or_group == VARIANTS for o in parsed)
    return "-".join(named or sorted(o.key_or_group.rpartition(".")[2] for o in parsed if o.is_sweep_override()))


def refuse_mistakes(arguments: Sequence[str], *, several: bool = False) -> None:
    """Raise `GolfError` for a misspelled flag, group, option, setting or value, without importing torch.

    Torch takes two seconds, which nobody should wait for a typo. `several` allows lists of values to sweep over; the
    first of each is looked at.
    """
    flags, overrides = flags_first(arguments)
    overrides = without_ideas(overrides)
    if any(flag.startswith(OTHER_ENTRY) for flag in flags):  # Hydra then composes something else, or nothing
        return
    _register_values()
    # Stand-ins with the right names are enough to find a typo; the real schemas would import torch.
    for name, settings in technique_settings().items():
        if name not in _registered:
            stand_in = dataclasses.make_dataclass(name, [(key, Any, None) for key in settings])
            ConfigStore.instance().store(group="tech", name=f"{name}_schema", node=stand_in)
    # Asking for the GPUs would import torch, and no mistake depends on them.
    anywhere = hardware.Hardware(0, "", hopper=False, cpu_cores=1, cpu_bf16=False, cpu_compiler=False)
    try:
        with hardware.assumed(anywhere):
            node = _composed(_first_of_each(overrides) if several else overrides)
            _refuse_unknown(node, Config)
            cfg = OmegaConf.to_object(node)
    except COMPOSITION_ERRORS as error:
        raise GolfError(explain(error)) from error
    assert isinstance(cfg, Config)
    check_values(cfg)


def _first_of_each(overrides: Sequence[str]) -> list[str]:
    """Return `overrides` with the first value where several are listed, and without intervals to search in."""
    single = []
    for override in OverridesParser.create().parse_overrides(list(overrides)):
        if not override.is_sweep_override():
            single.append(str(override.input_line))
        elif override.is_discrete_sweep() and override.value_type != ValueType.GLOB_CHOICE_SWEEP:
            if (value := next(override.sweep_string_iterator(), None)) is None:
                raise GolfError(f"{override.input_line} lists no value: write one that has some.")
            single.append(f"{str(override.input_line).partition('=')[0]}={value}")
    return single


def _composed(overrides: Sequence[str]) -> DictConfig:
    refuse_null_groups(overrides)
    refuse_unsupported(overrides)
    refuse_odd_files(overrides)
    # Hydra refuses to be initialized twice in a process.
    GlobalHydra.instance().clear()
    with initialize_config_dir(CONF_DIR, version_base="1.3"):
        return hydra_compose("config", overrides=completed(overrides))


def compose(overrides: Sequence[str] = ()) -> Config:
    """Return the configuration that `python golf/train.py <overrides>` would run, settled and checked.

    `overrides` are Hydra's: `model=11l`, `optim.matrix_lr=0.02`. Raises `GolfError` with what to write instead.
    """
    if isinstance(overrides, str):
        raise GolfError(f"compose() takes a list of overrides: write compose([{overrides!r}]).")
    overrides = without_ideas(overrides)
    # Where torch is there already, the check that avoids it saves nothing.
    if "torch" not in sys.modules:
        refuse_mistakes(overrides)
    register_techniques()
    try:
        node = _composed(overrides)
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
    if option not in (known := options_of("rules")):
        raise GolfError(f"rules={option} does not exist; {suggestion(option, known)}")
    try:
        GlobalHydra.instance().clear()
        with initialize_config_dir(CONF_DIR, version_base="1.3"):
            rules = OmegaConf.to_object(hydra_compose(f"rules/{option}", overrides=list(overrides)).rules)
    except COMPOSITION_ERRORS as error:
        raise GolfError(explain(error)) from error
    assert isinstance(rules, RulesConfig)
    check_fields(rules, "rules.")
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
    # The order matters: what is dropped must not sway a choice for the machine, and the checks want no `auto`.
    left_over = _keep_selected(cfg)
    drop(cfg)
    ideas = {name: idea_of(type(settings)) for name, settings in cfg.tech.items()}
    codes = {name: idea.digest() for name, idea in ideas.items() if idea}
    cfg.idea_code = {name: code for name, code in codes.items() if code != ONCE_BUILT_IN.get(name)}
    chosen = [f"chosen for this machine: {line}" for line in hardware.settle(cfg)]
    check(cfg)
    return cfg, [*left_over, *chosen, *(f"note: {sentence}" for sentence in warnings(cfg))]


def _keep_selected(cfg: Config) -> list[str]:
    """Keep the selected techniques, in the order of application. Return a remark for each of the others."""
    known = technique_types()
    if unknown := [name for name in cfg.tech if name not in known]:
        raise GolfError(no_technique(unknown[0]))
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
            raise GolfError(unknown_setting(f"{prefix}{key}", list(known)))
        if dataclasses.is_dataclass(group := known[key].default_factory) and OmegaConf.is_dict(node[key]):
            _refuse_unknown(node[key], group, f"{prefix}{key}.")
