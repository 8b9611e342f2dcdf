"""The names of all settings, without torch: a mistyped one is answered before anything slow is imported."""

from __future__ import annotations

import ast
import csv
import dataclasses
import difflib
import functools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_type_hints

from golf.idea_folders import fault, ideas
from golf.paths import ROOT
from golf.settings.config import Config
from golf.tables import grouped

MOST_SUGGESTED = 3
# What other frameworks call a setting, and its name here.
SYNONYMS = dict(csv.reader(Path(__file__).with_name("synonyms.csv").read_text(encoding="utf-8").splitlines()))


def technique_settings() -> dict[str, tuple[str, ...]]:
    """Return the settings of every technique by its name, read from the files: importing them takes seconds."""
    return _settings_in((*_own_files(), *(idea.file for idea in ideas().values())))


@functools.cache
def _own_files() -> tuple[Path, ...]:
    return tuple(sorted((ROOT / "golf/training/techniques").glob("*.py")))


@functools.cache
def _settings_in(files: tuple[Path, ...]) -> dict[str, tuple[str, ...]]:
    settings = {}
    for path in files:
        try:
            body = ast.parse(path.read_text(encoding="utf-8")).body
        except (OSError, SyntaxError, ValueError):
            continue  # an idea that cannot be read is named where it is selected
        for node in body:
            if isinstance(node, ast.ClassDef) and (name := _technique_name(node)):
                fields = (item for item in node.body if isinstance(item, ast.AnnAssign) and item.value is not None)
                settings[name] = tuple(f.target.id for f in fields if isinstance(f.target, ast.Name))
    return settings


def _technique_name(node: ast.ClassDef) -> str | None:
    """Return NAME of the decorator `technique(NAME)`; None for other classes."""
    for made in node.decorator_list:
        if isinstance(made, ast.Call) and isinstance(made.func, ast.Name) and made.func.id == "technique":
            return str(ast.literal_eval(made.args[0]))
    return None


def fields_of(kind: type) -> Iterator[str]:
    """Yield the dotted names of all settings of a dataclass and of the dataclasses in it."""
    for name, hint in get_type_hints(kind).items():
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            yield from (f"{name}.{inner}" for inner in fields_of(hint))
        else:
            yield name


def setting_keys() -> tuple[str, ...]:
    """Return the full keys of all settings, such as `optim.matrix_lr` and `tech.bigram.dim`."""
    return (*_plain_keys(), *(f"tech.{name}.{key}" for name, keys in technique_settings().items() for key in keys))


@functools.cache
def _plain_keys() -> tuple[str, ...]:
    return tuple(fields_of(Config))


def named_alike(key: str) -> list[str]:
    """Return up to three full keys of settings that `key` may mean, the likeliest first; none if nothing is close.

    What other frameworks mean by the name comes first, then settings of that very name, those that end in it, as `lr`
    ends matrix_lr, and those of a similar name.
    """
    group, _, last = key.replace("-", "_").lower().rpartition(".")
    known = grouped((full.rpartition(".")[2], full) for full in setting_keys())
    meant = [SYNONYMS[last]] if last in SYNONYMS else []
    alike = [name for name in known if name == last]
    if (group or not meant) and len(last) > 1:
        alike += [name for name in known if name.endswith(f"_{last}")]
    alike = alike or meant or difflib.get_close_matches(last, known, n=2, cutoff=0.75)
    candidates = [full for name in alike for full in known.get(name, ())]
    if group:
        candidates.sort(key=lambda full: -difflib.SequenceMatcher(None, group, full.rpartition(".")[0]).ratio())
    return [*meant, *(full for full in candidates if full not in meant)][:MOST_SUGGESTED]


def no_technique(name: str) -> str:
    """Return the sentence about a technique that cannot be selected."""
    name = name.removesuffix("_schema")  # of an idea that registers nothing
    if name in ideas():
        return fault(ideas()[name])
    if name in technique_settings():
        return f"The technique {name} stands in the module of another idea: move it to a folder of its own, {name}/."
    return f"There is no technique {name}; {suggestion(name, sorted(technique_settings()))} Or add ideas=FOLDER."


def suggestion(word: str, known: Sequence[str]) -> str:
    """Return the end of a sentence about an unknown word: what is near it among `known`, and all of them."""
    if near := near_to(word, known):
        return f"did you mean {' or '.join(near)}? (Known: {', '.join(known)}.)"
    return f"known are {', '.join(known)}."


def near_to(word: str, known: Sequence[str]) -> list[str]:
    """Return up to three of `known` that have `word` as whole parts, or else the one that differs by a slip or two.

    Between the two come those that begin with the word, if it has three letters or more.
    """
    typed = word.lower()
    parts = (
        [name for name in known if re.search(rf"(?:^|[_/-])(?:pr)?{re.escape(typed)}(?:$|[_/-])", name.lower())]
        if typed
        else []
    )
    parts.sort(key=lambda name: name.lower() != typed)
    alike = [name for name in known if abs(len(name) - len(word)) <= 2]
    close = difflib.get_close_matches(typed, [name.lower() for name in alike], n=1, cutoff=0.6)
    begun = [name for name in known if len(typed) > 2 and name.lower().startswith(typed)]
    return (parts or begun)[:MOST_SUGGESTED] or [name for name in alike if name.lower() in close][:1]
