"""Imported runs as entries of a list: which of them are shown, and in which order."""

from __future__ import annotations

import dataclasses
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from golf.errors import GolfError
from golf.lab.report.imported_rows import rows_of_record
from golf.lab.report.rows import RunRow, is_number
from golf.tables import table_of

# The longer signs come first: `<` would match the beginning of `<=`.
_CONDITION = re.compile(r"\s*(\w+)\s*(<=|>=|<|>|=)\s*(.*?)\s*")
_COMPARED = {"<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge, "=": operator.eq}
_SHORT: dict[str, str] = table_of(__file__)["short"]
FAULT = "fault"
TEXTS = ("name", "state", "reason", "machine", "how", "sliding_how", "ttt_how", "data", "variant")
NUMBERS = tuple(
    field.name
    for field in dataclasses.fields(RunRow)
    if field.name not in (*TEXTS, "source", "path", "faults", "slowdown", "cap_bytes", "cpu_seconds")
)
FIELDS = (*_SHORT, *TEXTS, *NUMBERS, FAULT)


@dataclass(frozen=True)
class Entry:
    """One imported run: its row, its own record and that of its submission."""

    row: RunRow
    run: dict[str, Any]
    submission: dict[str, Any]

    @property
    def faults(self) -> list[str]:
        """The faults of the run and those of its submission."""
        return [*self.run["faults"], *self.submission["faults"]]

    def value(self, field: str) -> Any:
        """Return a field of the row by its name in the table or in the CSV."""
        return getattr(self.row, _SHORT.get(field, field))


def entries_of(records: Sequence[dict[str, Any]]) -> list[Entry]:
    """Return an entry for each run of the records, in their order."""
    pairs = ((record, zip(rows_of_record(record), record["runs"], strict=True)) for record in records)
    return [Entry(row, run, record) for record, runs in pairs for row, run in runs]


def chosen(entries: Sequence[Entry], conditions: Sequence[str]) -> list[Entry]:
    """Return the entries that meet all conditions, such as `state=over_bytes`, `val_bpb<1.1`, `fault=cap` or a word.

    A text or a word has to be contained in the field, whatever its case; an unknown number meets no condition.
    Raises `GolfError` for an unknown field and for a number that is none.
    """
    # Every condition is parsed before the first entry, so that a wrong one is refused even without runs.
    tests = [_test(condition) for condition in conditions]
    return [entry for entry in entries if all(test(entry) for test in tests)]


def _test(condition: str) -> Callable[[Entry], bool]:
    if (match := _CONDITION.fullmatch(condition)) is None:
        word = condition.strip().lower()
        return lambda entry: any(word in text.lower() for text in (entry.row.name, entry.row.state, *entry.faults))
    field, sign, wanted = match[1], match[2], match[3]
    _check_field(field)
    if field == FAULT:
        return lambda entry: any(wanted.lower() in fault.lower() for fault in entry.faults)
    if _SHORT.get(field, field) in TEXTS:
        if sign != "=":
            raise GolfError(f"{field} is a text: write {field}={wanted} for runs that have it in theirs.")
        return lambda entry: wanted.lower() in str(entry.value(field) or "").lower()
    try:
        number = float(wanted.replace(",", "").replace("_", ""))
    except ValueError:
        raise GolfError(f"{field} is a number, {wanted} is none: write {field}{sign}1.1 or the like.") from None
    return lambda entry: is_number(entry.value(field)) and _COMPARED[sign](entry.value(field), number)


def ordered(entries: Sequence[Entry], field: str) -> list[Entry]:
    """Return the entries sorted by a field, with `-` before it from the largest; unknown values come last.

    Raises `GolfError` for an unknown field.
    """
    name = field.removeprefix("-")
    _check_field(name)
    if name == FAULT:
        return sorted(entries, key=lambda entry: (-1 if field.startswith("-") else 1) * len(entry.faults))

    def is_known(entry: Entry) -> bool:
        # An unknown value has no order among numbers, and Python refuses to compare it.
        return isinstance(value := entry.value(name), str) or is_number(value)

    known = sorted(filter(is_known, entries), key=lambda entry: entry.value(name), reverse=field.startswith("-"))
    return [*known, *(entry for entry in entries if not is_known(entry))]


def _check_field(field: str) -> None:
    if field not in FIELDS:
        raise GolfError(f"Imported runs have no {field}: choose one of {', '.join(dict.fromkeys(FIELDS))}.")
