"""Differences between two variants in words: techniques removed or added, settings changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from golf.registry import technique_types
from golf.settings.dropping import OFF
from golf.words import as_override

MISSING = object()
CODE = "idea_code."  # begins the key of the hash of an idea's code
Flat = Mapping[str, Any]  # `group.key` → value, as `golf.run.identity.identity_of` returns it


@dataclass(frozen=True)
class Change:
    """The difference between a reference and a variant."""

    removed: tuple[str, ...]  # names of techniques
    added: tuple[str, ...]  # names of techniques
    settings: Mapping[str, Any]  # new values of changed keys, those of techniques that both have included

    @property
    def things(self) -> list[str]:
        """Return the names of everything that changed, one entry for each thing that can be switched on its own."""
        keys, named = set(self.settings), []
        # `drop=[weight_decay]` sets several keys at once: they count as one thing.
        for name, off in OFF.items():
            if keys & set(off):
                named.append(name)
                keys -= set(off)
        return [*self.removed, *self.added, *named, *sorted(keys)]

    def __str__(self) -> str:
        parts = [f"without {name}" for name in self.removed] + [f"with {name}" for name in self.added]
        return ", ".join([*parts, *(f"{key}={as_override(value)}" for key, value in self.settings.items())])


def change(reference: Flat, variant: Flat) -> Change:
    """Return the change that turns `reference` into `variant`."""
    before, after = techniques_of(reference), techniques_of(variant)
    # The settings of a technique that only one side has come and go with it, so they are no changes of their own.
    in_one_only = before ^ after
    keys = [
        key
        for key in sorted({*reference, *variant} - {"tech"})
        if reference.get(key, MISSING) != variant.get(key, MISSING) and _technique(key) not in in_one_only
    ]
    settings = {key: variant.get(key) for key in keys}
    return Change(tuple(sorted(before - after)), tuple(sorted(after - before)), settings)


def techniques_of(flat: Flat) -> set[str]:
    """Return the names of the selected techniques."""
    return {name for name in map(_technique, flat) if name}


def differing_keys(flats: Sequence[Flat]) -> list[str]:
    """Return the keys whose values are not the same in all of `flats`."""
    keys = sorted(set().union(*flats))
    return [key for key in keys if any(flat.get(key, MISSING) != flats[0].get(key, MISSING) for flat in flats)]


def settings_that_differ(flats: Mapping[str, Flat]) -> dict[str, dict[str, str]]:
    """Return the settings in which `flats` differ, as overrides spell them, by id and key; `tech` names techniques."""
    # What a technique sets comes after the techniques' names, which are compared like a setting.
    named = {id: {**flat, "tech": ",".join(sorted(techniques_of(flat)))} for id, flat in flats.items()}
    keys = sorted(differing_keys(list(named.values())), key=lambda key: key.startswith("tech"))
    # A hash says something only where the code of one idea differs: that the idea is there, `tech` says.
    values = {key: {flat.get(key) for flat in flats.values()} - {None} for key in keys if key.startswith(CODE)}
    keys = [key for key in keys if key not in values or len(values[key]) > 1]
    return {id: {key: as_override(flat[key]) for key in keys if key in flat} for id, flat in named.items()}


def why_not_separable(reference: Flat, variant: Flat) -> str:
    """Return why a row of an ablation shows no single effect; empty if it shows one."""
    if not (things := change(reference, variant).things):
        return "the same variant as the reference: nothing is different"
    return f"changes {' and '.join(things)} together{_because(things)}" if len(things) > 1 else ""


def required_by(name: str, selected: set[str]) -> list[str]:
    """Return the techniques among `selected` that require `name`."""
    return sorted(other for other in selected if name in _declared(other, "requires"))


def _technique(key: str) -> str:
    """Return the technique that a flat key belongs to; a technique without settings is a key of its own.

    The hash of an idea's code belongs to the technique, as its settings do.
    """
    return key.split(".")[1] if key.startswith(("tech.", CODE)) else ""


def _because(things: list[str]) -> str:
    """Return the declaration that ties two of `things`, such as `: a requires b`; empty if there is none."""
    for name in things:
        for other in things:
            if other in _declared(name, "requires"):
                return f": {name} requires {other}"
            if other in _declared(name, "conflicts"):
                return f": {name} and {other} exclude each other"
    return ""


def _declared(name: str, attribute: str) -> tuple[str, ...]:
    """Return `requires` or `conflicts` of a technique; empty for anything that is not a technique."""
    # The first call imports torch. Only reports of ablations get here; all others are made without it.
    return getattr(technique_types().get(name), attribute, ())
