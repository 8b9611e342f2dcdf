"""One sentence for every mistake in overrides: what is wrong and what to write instead. It needs no torch."""

from __future__ import annotations

import codecs
import dataclasses
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast, get_type_hints

import yaml

from golf.errors import GolfError
from golf.idea_folders import place_of
from golf.paths import ROOT
from golf.settings.config import Config
from golf.settings.names import (
    SYNONYMS,
    named_alike,
    near_to,
    no_technique,
    setting_keys,
    suggestion,
    technique_settings,
)
from golf.settings.quoting import quoted
from golf.settings.usage import options_of
from golf.tables import table_of

SENTENCES: dict[str, Any] = table_of(__file__)
# Hydra's flags that stand alone, and those that a word follows.
ALONE = "--dry-run --json --help -h --hydra-help --version --resolve --run -r --multirun -m --shell-completion -sc"
WITH_WORD = "--cfg -c --package -p --info -i --config-path -cp --config-name -cn --config-dir -cd --experimental-rerun"
FLAGS = {**dict.fromkeys(ALONE.split(), False), **dict.fromkeys(WITH_WORD.split(), True)}
MAY_BE_NULL = ("sweep", "experiment")
HYDRA_FOLDERS = ("hydra.run.dir", "hydra.sweep.dir", "hydra.sweep.subdir")
GROUPS_OF_RUNS = ("experiment", "sweep", "model", "quant", "data", "eval", "scale")
LAUNCHERS = ("golf", "golf_submit", "joblib")
OTHER_ENTRY = ("--hydra-help", "--version", "--shell-completion", "-sc", "--config-", "-cp", "-cn", "-cd", "--exp")


def flags_first(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return Hydra's flags with the words that belong to them, and the overrides. They may be given in any order.

    Raises `GolfError` for a word that is neither, such as `--seed` or a setting without `=`.
    """
    flags: list[str] = []
    overrides: list[str] = []
    words = list(arguments)
    while words:
        word = words.pop(0)
        if word.startswith("-"):
            flag, _, value = word.partition("=")
            # Long flags can be shortened: --multi is --multirun.
            known = next((f for f in FLAGS if f == flag or (flag.startswith("--") and f.startswith(flag))), None)
            if known is None:
                as_in = f"as in {_example(flag.lstrip('-'), value or _value_in(words))}"
                raise GolfError(f"There is no flag {flag}: settings are written as key=value without dashes, {as_in}.")
            flags.append(word)
            if FLAGS[known] and not value:
                if words and not words[0].startswith("-") and "=" not in words[0]:
                    flags.append(words.pop(0))
                elif known not in ("--info", "-i"):
                    raise GolfError(f"{flag} is followed by a word, such as `--cfg job`; `--hydra-help` lists them.")
                else:
                    # Hydra would take the next override for the word.
                    flags[-1] += "=all"
        elif "=" in word or word.startswith("~"):
            if word.startswith("="):
                value = word.lstrip("=") or _value_in(words)
                how = f"write settings as key=value without spaces, as in {_example('')}"
                raise GolfError(f"'={value}' has no setting before it: {how}.")
            overrides.append(word)
        else:
            raise GolfError(_no_equals(word, words))
    return flags, overrides


def _value_in(words: Sequence[str]) -> str:
    """Return the next word if it can be the value of the word before it."""
    return words[0] if words and "=" not in words[0] and not re.match(r"-[^\d.]", words[0]) else ""


def _no_equals(word: str, following: Sequence[str]) -> str:
    key, _, value = word.partition(" ")
    if not value:  # `key value`, `key = value`, `key =value`
        rest = [w for w in following[:2] if w != "="] if following[:1] == ["="] else following[:1]
        value = _value_in([rest[0].lstrip("=")]) if rest and ("=" not in rest[0] or rest[0].startswith("=")) else ""
    return f"'{word}' has no '=': write settings as key=value without spaces, as in {_example(key, value)}."


def _example(word: str, value: str = "") -> str:
    """Return an override of the setting that `word` seems to mean, such as `optim.matrix_lr=0.02` for `matrix-lr`."""
    key = word.replace("-", "_")
    if key in setting_keys() or (key and (ROOT / "conf" / key).is_dir()):
        return f"{key}={value or 'VALUE'}"
    close = named_alike(key) if key else []
    return f"{close[0]}={value or 'VALUE'}" if close else "optim.matrix_lr=0.02"


def explain(error: BaseException) -> str:
    """Return one sentence for an error of Hydra or OmegaConf: what is wrong and what to write instead."""
    # Both put what went wrong into the text of their errors only. The expressions here and in mistakes.yaml fit the
    # versions that pyproject.toml pins; tests/settings/test_composition.py fails if a text changes.
    causes = error, error.__cause__, error.__context__
    if ours := [e for e in causes if isinstance(e, GolfError)]:  # a resolver of golf's own refused
        return str(ours[0])
    text = "\n".join(str(e) for e in causes if e)
    if match := re.search(r"Key '\S+' (?:is )?not in [\s\S]*?full_key: (\S+)", text):
        return unknown_setting(match[1], _fields_in(match[1]))
    if match := re.search(r"Could not load 'tech/(\w+)'", text):
        return no_technique(match[1])
    no_option = r"Could not find '(\w+)/([^']*)'[\s\S]*?Available options in '\w+':([\s\S]*?)Config search"
    if match := re.search(no_option, text):
        return _no_option(*match.groups()[:2])
    if match := re.search(
        r"(?:Value|Cannot convert) '(.*?)'(?: of type '\w+')? .*?(?:to|type) '?(\w+)'?[\s\S]*?full_key: (\S+)", text
    ):
        value, wanted, full_key = match.groups()
        if "is not a valid bool" in match[0]:
            return f"{full_key} takes true or false, not '{value}'."
        return f"{full_key} takes {'an' if wanted == 'Integer' else 'a'} {wanted.lower()}, not '{value}'."
    for error_of_hydra in SENTENCES["errors"]:
        if match := re.search(error_of_hydra["text"], text):
            return str(error_of_hydra["says"].format(*match.groups()))
    # OverrideParseException; its class would have to be imported from Hydra, which composition.py alone does.
    if bare := [word for e in causes if e and "=" not in (word := str(getattr(e, "override", "=")))]:
        return _no_equals(bare[0], ())
    if unread := [word for e in causes if "override_grammar" in str(e) and (word := getattr(e, "override", ""))]:
        return _unreadable(unread[0])
    if match := re.search(r"is not a ListConfig[\s\S]*?full_key: (\S+)", text):
        return f"{match[1]} takes a list: write {match[1]}=[…] with commas between."
    return f"The overrides cannot be composed: {' '.join(text.split())}{place_of(error, ())}"


def _no_option(group: str, option: str) -> str:
    """Return the sentence about an option that its group does not have, with a group that has it."""
    known = options_of(group)
    elsewhere = [g for g in GROUPS_OF_RUNS if g != group and option.lower() in map(str.lower, options_of(g))]
    if elsewhere and not near_to(option, known):
        added = "+" if elsewhere[0] == "sweep" else ""
        return f"{group}={option} does not exist; did you mean {added}{elsewhere[0]}={option.lower()}?"
    return f"{group}={option} does not exist; {suggestion(option, known)}"


def _unreadable(override: str) -> str:
    """Return the sentence about an override that Hydra's grammar cannot read."""
    key, _, value = override.partition("=")
    if not re.fullmatch(r"[+~]*\w+(?:[./@-]\w+)*", key):
        return f"'{key}' in {override} is no setting: write settings as key=value, as in {_example('')}."
    if value[:1] in "[{" or any(value.count(a) != value.count(b) for a, b in ("()", "[]", "{}")):
        return f"{override} cannot be read: close every bracket and quote, and put words with signs in quotes."
    example = shlex.quote(f"{key}={quoted(value)}")
    return f"{override} cannot be read: quote the value once for the shell and once for Hydra, as in {example}."


def refuse_null_groups(overrides: Sequence[str]) -> None:
    """Raise `GolfError` for `model=null`, `~model` and the like: only a sweep and an experiment may be left out so."""
    for override in overrides:
        group, _, option = override.lstrip("+~").partition("=")
        # Hydra deletes the choice, and the schema's defaults would be trained.
        option = "" if override.startswith("~") else option
        # Hydra looks for the names of files in the list and stops at a number with a traceback.
        if group == "tech" and re.search(r"[\[,]\s*[+-]?[\d.]+\s*[,\]]", option):
            raise GolfError(f"{override}: tech lists names, not numbers, as in tech=[bigram,xsa].")
        if group == "tech" and option in ("null", "none", ""):
            raise GolfError(f"{override}: write tech=[] for no technique, or drop=[xsa] for all others but xsa.")
        # Hydra takes a number for a value, and not for the name of an option.
        if re.fullmatch(r"\d+", option) and (ROOT / "conf" / group).is_dir() and option not in options_of(group):
            raise GolfError(_no_option(group, option))
        if option in ("null", "") and group not in MAY_BE_NULL and group and (ROOT / "conf" / group).is_dir():
            known = ", ".join(options_of(group))
            raise GolfError(f"{override}: a run needs one of {group}'s options; choose from {known}.")


def refuse_unsupported(overrides: Sequence[str]) -> None:
    """Raise `GolfError` for a folder or a launcher of Hydra's that golf's runs, records and tables would not use.

    Techniques added with + are refused beside other lists of them, of which Hydra keeps one.
    """
    lists = [override for override in overrides if re.match(r"\+*tech=", override)]
    if len(lists) > 1 and any(override.startswith("+") for override in lists):
        raise GolfError(SENTENCES["techniques"].format(" ".join(lists)))
    for override in (o.lstrip("+") for o in overrides):
        key, _, value = override.partition("=")
        if key in HYDRA_FOLDERS:
            raise GolfError(SENTENCES["folder"].format(override))
        if key == "hydra/launcher" and value not in LAUNCHERS:
            raise GolfError(SENTENCES["launcher"].format(override))


def refuse_odd_files(overrides: Sequence[str]) -> None:
    """Raise `GolfError` for an option whose file in conf/ is no YAML in UTF-8, or begins with a byte order mark.

    Behind such a mark Hydra does not see the first line, which says where the file's settings belong.
    """
    for group, _, options in (override.lstrip("+").partition("=") for override in overrides):
        for option in options.strip("[]").split(","):
            file = ROOT / "conf" / group / f"{option}.yaml"
            if group and option and file.is_file():
                _refuse_odd(file)


def _refuse_odd(file: Path) -> None:
    name, content = file.relative_to(ROOT), file.read_bytes()
    if content.startswith(codecs.BOM_UTF8):
        raise GolfError(f"{name} begins with a byte order mark: save it as UTF-8 without one.")
    try:
        yaml.compose(content.decode("utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except UnicodeDecodeError as error:
        raise GolfError(f"{name} is not UTF-8 (byte {error.start + 1}): save it as UTF-8.") from error
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", error)
        line = f" in line {mark.line + 1}" if mark else ""
        remedy = ": indent by spaces, not by tabs" if mark and b"\t" in content.splitlines()[mark.line] else ""
        raise GolfError(f"{name} is no YAML{line} ({' '.join(str(problem).split())}){remedy}.") from error


def _fields_in(full_key: str) -> list[str]:
    """Return the settings beside the unknown `full_key`."""
    parts = full_key.split(".")
    if parts[0] == "tech" and len(parts) > 2:
        return list(technique_settings().get(parts[1], ()))
    group: type = Config
    for part in parts[:-1]:
        inner = get_type_hints(group).get(part)
        if not dataclasses.is_dataclass(inner):
            break
        group = cast(type, inner)
    # Nobody sets the hashes of ideas. The other two are no settings, and are given as if they were.
    own = [f.name for f in dataclasses.fields(group) if f.name != "idea_code"]
    return own if len(parts) > 1 else [*own, "experiment", "ideas"]


def unknown_setting(full_key: str, known: Sequence[str]) -> str:
    """Return the sentence about a setting that does not exist; `known` are those of its group.

    A similar name among those comes before the same name in another group.
    """
    parts = full_key.split(".")
    if parts[0] == "tech" and len(parts) == 2:
        if parts[1] in technique_settings():
            return f"Technique {parts[1]} is not selected: add it with +tech={parts[1]}."
        return no_technique(parts[1])
    if parts[0] == "tech" and parts[1] in technique_settings():
        # The same name in another technique means another thing.
        own = suggestion(parts[-1], list(known)) if known else f"{parts[1]} has none."
        return f"There is no setting {full_key}; {own}"
    beside = suggestion(parts[-1], list(known))
    alike = named_alike(full_key)
    if alike and (parts[-1] in SYNONYMS or not beside.startswith("did you mean")):
        return f"There is no setting {full_key}; did you mean {' or '.join(alike)}?"
    return f"There is no setting {full_key}; {beside}"


def refuse_unknown_key(key: str) -> None:
    """Raise `GolfError` unless `key` is the full key of a setting."""
    if key not in setting_keys():
        group = key.rpartition(".")[0]
        beside = [full.rpartition(".")[2] for full in setting_keys() if full.rpartition(".")[0] == group]
        raise GolfError(unknown_setting(key, beside if group else [f.name for f in dataclasses.fields(Config)]))
