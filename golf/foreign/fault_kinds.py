"""Kinds of faults of imported runs, the gravest first, and their sentences in that order."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from golf.foreign.imported_entries import Entry
from golf.run.result import OVER_BYTES, OVER_TIME
from golf.words import listed

MOST_FAULTS_SHOWN = 60
OTHER = "other"
# The order decides twice: the first kind whose words a sentence has is its kind, and lists of faults are sorted by it.
_KINDS = {  # kind → beginning or part of its sentences
    "over the cap": r"over the cap of",
    "over the time": r"^trained [\d,.]+ s|^scoring took|: (?:training|scoring) took",
    "validation text in training": r"train shards: a preparation",
    "other text or bytes": r"^scored as|bytes per token before",
    "copies": r"are copies of one run",
    "claims": r"^\S+\.json(?:: | is | holds )",
    "README": r"^readme\.md",
    "seeds": r"\bseed\b",
    "shards": r"trained on .* shards",
    "kind of score": r"flat score|sliding-window score|repeats the|more than a sliding|further score|got worse",
    "impossible scores": r"cannot be a score",
    "sizes": r"bytes in total are not",
    "crash after the score": r"^crashed after",
    "cut or damaged": r"compressed data",
    "no log": r"there is no log|seeds together",
    "several runs in a file": r"^run \d+ of \d+ in one file",
}
_PATTERNS = {kind: re.compile(pattern, re.IGNORECASE) for kind, pattern in _KINDS.items()}
KINDS = (*_KINDS, OTHER)
_TOLD_BY_FAULTS = {OVER_BYTES: "over the cap", OVER_TIME: "over the time"}  # states that repeat a fault


def kind_of(fault: str) -> str:
    """Return the kind of a fault's sentence."""
    return next((kind for kind, pattern in _PATTERNS.items() if pattern.search(fault)), OTHER)


def counts(entries: Sequence[Entry]) -> str:
    """Return how many faults there are of each kind, the gravest kind first; empty without a fault."""
    found = Counter(kind for kind, _, _ in _faults(entries))
    listed = ", ".join(f"{found[kind]:,} {kind}" for kind in KINDS if found[kind])
    return f"{found.total():,} faults: {listed}" if found else ""


def fault_lines(entries: Sequence[Entry]) -> list[str]:
    """Return the gravest faults, each with the runs that have it, then the ends of runs that are not ok."""
    # One sentence about three seeds is one line.
    names: dict[tuple[str, str, str], list[str]] = {}
    for kind, name, fault in _faults(entries):
        names.setdefault((kind, name.partition("/")[0], fault), []).append(name)
    lines = [
        f"{listed(runs)}: {fault}"
        for (_, _, fault), runs in sorted(names.items(), key=lambda item: KINDS.index(item[0][0]))
    ]
    for entry in entries:
        row = entry.row
        # Runs over the cap or the time have a fault that says the same with the amount.
        told = _TOLD_BY_FAULTS.get(row.state)
        if row.reason and not (told and any(kind_of(fault) == told for fault in entry.run["faults"])):
            lines.append(f"{row.name}: {row.state}, {row.reason}")
    more = len(lines) - MOST_FAULTS_SHOWN
    return lines[:MOST_FAULTS_SHOWN] + (
        [f"and {more:,} more: see --filter fault=WORDS, --csv, --json or --explain RUN"] if more > 0 else []
    )


def _faults(entries: Sequence[Entry]) -> list[tuple[str, str, str]]:
    """Return (kind, name, sentence) of every fault; those of a submission once, under its name."""
    found = []
    seen: set[int] = set()
    for entry in entries:
        # All entries of a submission hold one and the same record, so its identity tells whether it has been listed.
        if id(entry.submission) not in seen:
            seen.add(id(entry.submission))
            found += [(kind_of(fault), entry.submission["name"], fault) for fault in entry.submission["faults"]]
        found += [(kind_of(fault), entry.row.name, fault) for fault in entry.run["faults"]]
    return found
