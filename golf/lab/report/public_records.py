"""The public records as docs/records.csv lists them, and what each builds on."""

from __future__ import annotations

import csv

from golf.errors import GolfError
from golf.paths import ROOT

RECORDS = ROOT / "docs/records.csv"


def public_records() -> list[dict[str, str]]:
    """Return the rows of docs/records.csv; none if docs/ is not installed."""
    try:
        with RECORDS.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))
    except OSError:
        return []


def parent_of(experiment: str) -> str:
    """Return the experiment of the record that the record of `experiment` builds on. Raises `GolfError` if none is."""
    rows = public_records()
    parents = [row["parent"] for row in rows if row["experiment"] == experiment]
    if not (names := [row["experiment"] for row in rows if row["folder"] in parents]):
        raise GolfError(f"{experiment} is no record that builds on another one. Name two things to compare.")
    return names[0]
