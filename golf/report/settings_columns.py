"""The settings in which the variants of a table differ, as columns of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from golf.report.changes import differing_keys, written
from golf.report.table import Column
from golf.report.variants import Variant
from golf.run.identity import identity_of

MOST_SHOWN = 6  # columns of settings in a table for people; CSV has all of them
FIRST_SPARE = 20  # narrow terminals drop these columns before any other


def settings_columns(variants: Sequence[Variant], *, labelled: bool) -> tuple[list[Column], dict[str, dict]]:
    """Return a column for each setting that differs, and its values by variant id.

    People see the first few unless the variants are `labelled` with them, as those of a sweep are. Variants without a
    configuration, such as imported ones, have no values.
    """
    found = {variant.id: flat for variant in variants if (flat := _settings(variant))}
    keys = differing_keys(list(found.values())) if len(found) > 1 else []
    techniques = {id: ",".join(sorted(_techniques(flat))) for id, flat in found.items()}
    values = {
        id: {f"{key}": written(flat[key]) for key in keys if key in flat} | {"tech": techniques[id]}
        for id, flat in found.items()
    }
    differ = ["tech"] if len(set(techniques.values())) > 1 else []
    differ += [key for key in keys if key != "tech"]
    # What a selected technique sets is said by its name, and a name is no setting that acts.
    shown = [key for key in differ if not key.startswith("tech.") and not key.endswith(".name")]
    shown = [] if labelled else shown[:MOST_SHOWN]
    columns = [
        Column(key, key, is_text=True, in_text=key in shown, spare=FIRST_SPARE + number)
        for number, key in enumerate(differ)
    ]
    return columns, values


def _settings(variant: Variant) -> dict[str, Any]:
    """Return the settings of a variant's configuration by full key; empty without one."""
    for path in (row.path for row in variant.rows):
        try:
            return identity_of(json.loads((Path(path or "") / "config.json").read_bytes()))
        except (OSError, ValueError, AttributeError):
            continue
    return {}


def _techniques(flat: dict[str, Any]) -> set[str]:
    return {key.split(".")[1] for key in flat if key.startswith("tech.")}
