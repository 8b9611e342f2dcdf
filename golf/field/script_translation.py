"""A script under a command line as overrides, with sentences about all that they lack of the experiment."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from golf.errors import GolfError, RestrictionError
from golf.field.env_names import KEYS, NOT_THE_MODEL
from golf.field.env_techniques import is_off
from golf.field.env_vars import translate
from golf.field.known_scripts import likeness, on_preset, switches, unsettled
from golf.field.script_structure import script_structure
from golf.field.script_switches import with_computed
from golf.field.script_variables import ScriptVariables
from golf.field.translation import Translation
from golf.settings.composition import compose

if TYPE_CHECKING:
    from golf.settings.config import Config

MOST_NAMES = 30  # of functions in one sentence
UNREAD = 1e-5  # share of the parameters that scripts keep and never read, such as lanes of layers without lanes


@dataclass
class ScriptTranslation:
    """A script's experiment in Golf's words."""

    overrides: list[str]
    translation: Translation  # by names and marks
    record: str | None = None  # the experiment of the record whose script it is, but for what `missing` names
    missing: list[str] = field(default_factory=list)  # sentences about what the overrides lack


def translated_script(line: str, script: ScriptVariables, *, declares: bool = True) -> ScriptTranslation:
    """Return the translation of a command line; with `declares` the defaults are those of `script`.

    Raises `GolfError` for values that no setting takes.
    """
    declared = script.defaults if declares else None
    translation = translate(line, unread=script.unread, declared=declared, structure=script.structure)
    if (tree := script.tree) is not None:
        # The command line decides, too, which parts the script builds, and defaults that are made of other settings.
        declared = with_computed(tree, script.defaults, translation.given)
        structure = script_structure(tree, {**declared, **translation.given})
        script = replace(script, defaults=declared, structure=structure)
        translation = translate(
            line, unread=script.unread, declared=declared if declares else None, structure=structure
        )
    values = {**script.defaults, **translation.given}
    result = ScriptTranslation(translation.overrides, translation)
    named = [*translation.inexpressible, *translation.unknown]
    found = likeness(script.tree, values) if script.tree is not None else None
    if found is not None and found.is_relative:
        result.record = found.known.experiment
        try:
            overrides = on_preset(found.known, translation.overrides)
            unread = _unread_keys(values, found.without_effect)
            result.overrides = [o for o in overrides if o.partition("=")[0] not in unread or o.endswith("=null")]
        except GolfError as error:
            result.missing.append(_restricted(error))
        if found.differing:
            result.missing.append(
                f"the script is that of {found.known.folder} but for these functions, of which the list has what its "
                f"names tell: {' '.join(found.differing)}"
            )
            changed = {name.partition(".")[0] for name in found.differing}
            parts = [part for part in script.structure.missing if changed & set(_names(part))]
            result.missing += _always(parts)
        named = unsettled(found, values, named)
        if idle := [
            f"{n}={values[n]}" for n in sorted(found.without_effect & switches()) if not is_off(values[n] or "")
        ]:
            result.missing.append(
                f"nothing that runs reads these, and the list may have what they stand for: {' '.join(idle)}"
            )
    else:
        result.missing += _always(script.structure.missing)
        if found is not None and (strange := found.strange):
            others = [f"and {len(strange) - MOST_NAMES} more"] if len(strange) > MOST_NAMES else []
            result.missing.append(
                f"no known script has these functions, of which the list has what their names tell (the nearest is "
                f"{found.known.folder}): {' '.join([*strange[:MOST_NAMES], *others])}"
            )
    if not script.is_script:
        result.missing.append(
            "the log prints settings and not the script, so what that always has is not in the list: its loader, "
            "averaging, initialisation and quantization"
        )
    of_line = [text for text in named if text.partition("=")[0] not in script.defaults or text in translation.unknown]
    if defaults := [text for text in named if text not in of_line]:
        result.missing.append(f"defaults of the script without a counterpart here: {' '.join(defaults)}")
    if of_line:
        result.missing.append(f"not known here, so not in the list: {' '.join(of_line)}")
    try:
        # Composing raises if the values do not fit the settings.
        cfg = compose(result.overrides)
    except GolfError as error:
        # Without a script the values are the user's own, and the user can correct them.
        if not (declares or isinstance(error, RestrictionError)):
            raise
        result.missing.append(_restricted(error))
    else:
        if found is None or not found.is_relative or found.differing:
            result.missing += _other_model(script, translation, cfg)
    result.missing = list(dict.fromkeys(result.missing))
    return result


def _unread_keys(values: Collection[str], without_effect: Collection[str]) -> set[str]:
    """Return the settings of the experiment that the variables `values` stand for and none that runs reads."""
    keys = [{KEYS[n] for n in of if n in KEYS} for of in (without_effect, {*values} - {*without_effect})]
    return keys[0] - keys[1] - {KEYS[name] for name in NOT_THE_MODEL if name in KEYS}


def _always(parts: list[str]) -> list[str]:
    return [f"the script always has this, which is not in the list: {'; '.join(parts)}"] if parts else []


def _restricted(error: GolfError) -> str:
    return f"Golf has no such combination: {error} The overrides above are what the script does"


def _names(text: str) -> list[str]:
    """Return the names in a sentence."""
    return re.findall(r"[A-Za-z_]\w*", text)


def _other_model(script: ScriptVariables, translation: Translation, cfg: Config) -> list[str]:
    """Return a sentence if the log or the script counts other parameters than the model of `cfg` has."""
    from golf.field.parameter_count import UncountableError, parameter_count
    from golf.training.model.build import shapeless_model

    source, count = "log", script.model_params
    if count is None and script.tree is not None:
        try:
            source, count = "script", parameter_count(script.tree, {**script.printed, **translation.given})
        except UncountableError as error:
            return [f"the script's parameters cannot be counted: {error}; --script with a log compares them"]
    own = sum(parameter.numel() for parameter in shapeless_model(cfg).parameters())
    if count is None or abs(own - count) <= UNREAD * count:
        return []
    return [f"the {source} counts {count:,} parameters and this model has {own:,}: it is another one"]
