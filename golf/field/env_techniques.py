"""The public scripts' environment variables of techniques, as `tech=[…]` and its settings.

Each technique lists its own in `variables`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from golf.errors import GolfError
from golf.registry import Variable, technique_types
from golf.tables import grouped


def variables_of_techniques() -> dict[str, list[tuple[str, Variable]]]:
    """Return name of the variable → the techniques that list it, with what it means to each."""
    kinds = sorted(technique_types().items())
    return grouped((v.name, (technique, v)) for technique, kind in kinds for v in getattr(kind, "variables", ()))


def is_zero(value: str) -> bool:
    """Tell whether a variable's text means zero or "not given"."""
    return value.lower() in ("", "0", "0.0", "false")


def is_off(value: str) -> bool:
    """Tell whether the text of a switch means "off"; switches that name a layer or a fraction are off at -1."""
    return is_zero(value) or value.lower() in ("-1", "-1.0", "none")


def technique_overrides(assignments: Mapping[str, str], also: Collection[str] = ()) -> tuple[list[str], list[str]]:
    """Return the overrides for those of `assignments` that belong to techniques, and the unused ones as `NAME=value`.

    `also` are techniques that are selected without a variable.
    A variable is unused if it sets a detail of techniques that none of the others selects.
    """
    known = variables_of_techniques()
    given = [(*pair, value) for name, value in assignments.items() for pair in known[name]]
    selecting = [(t, variable, value) for t, variable, value in given if variable.selects and not is_off(value)]
    replaced = {variable.instead_of for _, variable, _ in selecting}
    selecting = [chosen for chosen in selecting if chosen[0] not in replaced]
    chosen = {technique for technique, _, _ in selecting} | set(also) - replaced
    details = [(t, variable, value) for t, variable, value in given if t in chosen and not variable.selects]
    # What a selecting variable fixes comes first, so that a detail can change it.
    settings = [
        f"tech.{technique}.{field}={setting}"
        for technique, variable, value in [*selecting, *details]
        for field, setting in _settings(variable, value).items()
    ]
    idle = [
        f"{name}={value}"
        for name, value in assignments.items()
        if not is_off(value) and not any(technique in chosen for technique, _ in known[name])
    ]
    return ([f"tech=[{','.join(sorted(chosen))}]", *settings] if chosen else []), idle


def _settings(variable: Variable, value: str) -> dict[str, Any]:
    if isinstance(variable.sets, str):
        return {variable.sets: value} if variable.sets else {}
    try:
        return variable.sets(value)
    except ValueError as error:
        raise GolfError(f"{variable.name}={value} cannot be read as numbers ({error}): correct the value.") from error
