"""Every setting with its meaning, default and choices, as the schema's files declare them."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_type_hints

from golf.registry import technique_types
from golf.settings.config import Config
from golf.settings.fields import ALLOWED, Choices, Range, default_of
from golf.words import as_override

# Fields of a dataclass at the top of a module are indented by four spaces.
DECLARED = re.compile(r"    (\w+): [^=]+ = ")
COMMENT = re.compile(r"(?:^|\s)# (.*)$")


@dataclass(frozen=True)
class Setting:
    """One setting of the schema."""

    key: str  # full key, such as optim.matrix_lr
    default: str  # default as written on a command line
    allowed: str  # choices or range; empty if its type alone says what it may be
    meaning: str  # the comment beside its declaration


@dataclass(frozen=True)
class Group:
    """The settings of one dataclass."""

    name: str  # prefix of its keys; empty for those of the run itself
    about: str  # first sentence of its docstring
    settings: tuple[Setting, ...]


def catalogue() -> list[Group]:
    """Return all groups of settings in the order of the schema, the techniques' last. It imports torch."""
    groups = list(_groups(Config, ""))
    groups += [group for name, kind in sorted(technique_types().items()) for group in _groups(kind, f"tech.{name}")]
    return [group for group in groups if group.settings]


def found(words: str) -> list[Group]:
    """Return the groups with the settings in whose keys, meanings or groups all of `words` occur."""
    wanted = words.lower().split()
    groups = []
    for group in catalogue():
        about = f"{group.name} {group.about}".lower()
        texts = ((s, f"{s.key} {s.meaning} {s.allowed} {about}".lower()) for s in group.settings)
        if matching := tuple(setting for setting, text in texts if all(word in text for word in wanted)):
            groups.append(dataclasses.replace(group, settings=matching))
    return groups


def _groups(kind: type, name: str) -> Iterator[Group]:
    """Yield the group of the dataclass `kind` and those of the dataclasses in it."""
    meanings, hints = _meanings(kind), get_type_hints(kind)
    settings, inner = [], []
    for field in dataclasses.fields(kind):
        key = f"{name}.{field.name}" if name else field.name
        if isinstance(hint := hints[field.name], type) and dataclasses.is_dataclass(hint):
            inner.append((hint, key))
        else:
            settings.append(Setting(key, as_override(default_of(field)), _allowed(field), meanings.get(field.name, "")))
    yield Group(name, " ".join((kind.__doc__ or "").split("\n\n")[0].split()), tuple(settings))
    for hint, key in inner:
        yield from _groups(hint, key)


def _meanings(kind: type) -> dict[str, str]:
    """Return the comment of every field: behind it, or in the lines above it."""
    meanings: dict[str, str] = {}
    above: list[str] = []
    # Python drops comments, so they are read from the source.
    for line in inspect.getsource(kind).splitlines():
        comment = COMMENT.search(line)
        if match := DECLARED.match(line):
            meanings[match[1]] = " ".join([*above, *([comment[1]] if comment else [])])
        above = [*above, comment[1]] if comment and line.strip().startswith("#") else []
    return meanings


def _allowed(field: dataclasses.Field[Any]) -> str:
    if isinstance(allowed := field.metadata.get(ALLOWED), Choices):
        return " | ".join("null" if name is None else name for name in allowed.names)
    if isinstance(allowed, Range):
        return " and ".join(f"{words} {bound:g}" for words, bound in allowed.bounds)
    return ""
