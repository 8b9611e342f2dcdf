"""submission.json as a file: whether a program can read it, and whether what everybody gives is in it."""

from __future__ import annotations

import codecs
import json
import math
from pathlib import Path
from typing import Any

from golf.challenge import SUBMISSION_NUMBERS, SUBMISSION_TEXTS
from golf.foreign.findings import Audit
from golf.foreign.submission_json import LARGEST_CHARACTERS, Claims, read_claims_file

NAME = "submission.json"
SPELLED_OTHERWISE = {
    "val_bpb": "val_bpb",
    "val_loss": "val_loss",
    "bytes_total": "total_bytes",
    "bytes_code": "code_bytes",
}
NEEDED = ("author", "val_bpb")  # all 58 public ones but a few have these; no other key is in every one


def read_claims(folder: Path, found: Audit) -> Claims | None:
    """What submission.json claims, however it is spelled; None if there is none. Says what is wrong with its form."""
    path = folder / NAME
    if not path.exists():
        return None
    if not path.is_file():
        found.unusable.append(f"{NAME} is no file")
        return None
    submission = read_claims_file(path)
    values, problems = _strictly_read(path)
    found.unusable += problems or [f"{NAME} {submission.problem}"] * bool(submission.problem)
    if isinstance(values, dict):
        _fields(values, submission, found)
    return submission


def _strictly_read(path: Path) -> tuple[Any, list[str]]:
    """The content as a strict reader has it, and why a strict reader refuses it."""
    raw = path.read_bytes()[: LARGEST_CHARACTERS + 1]
    problems: list[str] = []
    twice: list[str] = []
    if raw.startswith(codecs.BOM_UTF8):
        problems.append(f"{NAME} begins with a byte-order mark, which JSON readers refuse: save it without")
        raw = raw.removeprefix(codecs.BOM_UTF8)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        twice.extend(key for key in dict(pairs) if keys.count(key) > 1)
        return dict(pairs)

    try:
        values = json.loads(raw.decode("utf-8"), object_pairs_hook=unique)
    except UnicodeDecodeError as error:
        return None, [f"{NAME} is not UTF-8 (byte {error.start + 1}): save it as UTF-8"]
    except (ValueError, RecursionError) as error:
        return None, [f"{NAME} is not JSON: {error}"] if raw.strip() else [f"{NAME} is empty"]
    if twice:
        problems.append(f"{NAME} gives {', '.join(dict.fromkeys(twice))} twice: readers differ in which one counts")
    if not isinstance(values, dict):
        problems.append(f"{NAME} holds no JSON object")
    return values, problems


def _fields(values: dict[str, Any], submission: Claims, found: Audit) -> None:
    """Missing fields, fields of another type, and the core in other words."""
    missing, renamed, mistyped = [], [], []
    for key in (*SUBMISSION_TEXTS, *SUBMISSION_NUMBERS):
        figure = submission.figures.get(SPELLED_OTHERWISE.get(key, ""))
        if key not in values and figure is not None:
            renamed.append(f"{key} as {figure.source.partition(': ')[2]}")
        elif key not in values or values[key] == "":
            missing.append(key)
        elif not _has_type(key, values[key]):
            kind = "a number" if key in SUBMISSION_NUMBERS else "a text"
            mistyped.append(f"{key} is {_short(values[key])}, not {kind}")
    found.unusable += [f"{NAME} has no {key}" for key in missing if key in NEEDED]
    found.unusable += [f"{NAME}: {problem}" for problem in mistyped]
    if lacking := [key for key in missing if key not in NEEDED]:
        found.look_at.append(f"{NAME} has no {', '.join(lacking)}, which most submissions have")
    if renamed:
        found.look_at.append(f"{NAME} gives {', '.join(renamed)}: a reader of the usual names does not find it")
    if not (missing or renamed or mistyped):
        found.in_order.append(f"{NAME} has every field of the core, of the right type")


def _has_type(key: str, value: Any) -> bool:
    if key in SUBMISSION_TEXTS:
        return isinstance(value, str)
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) < 50 else text[:47] + "..."
