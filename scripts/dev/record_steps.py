"""The family tree of docs/records.csv, and what each record changed in the one that it builds on.

`write_docs.py` puts both into docs/records.md. The steps compose every preset, which takes half a minute.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from golf.lab.report.difference import Difference, differences
from golf.lab.report.public_records import parent_of
from golf.lab.report.statistics import WELCH, Comparison
from golf.paths import ROOT
from golf.settings.composition import compose
from golf.settings.config import Config

Record = dict[str, str]
CONFIDENCE = 0.9  # that of `rules=house`
MOST_SHOWN = 24  # more settings than that are for `golf why`
SHOWN, NOT_SHOWN = "shown", "**not shown**"
# These say the same as another setting, or where files lie.
TOLD_TWICE = ("data.path", "data.tokenizer_path", "model.vocab_size")
STEPS_HEAD = ["| record | bpb | difference | what changed |", "|---|---|---|---|"]


def tree(records: Sequence[Record]) -> str:
    """Return the tree of the records, a line each: score, name, pull request and those in between."""
    roots = [record for record in records if not record["parent"]]
    return "\n".join(line for root in roots for line in (_line(root, ""), *_below(root, records, "")))


def _below(parent: Record, records: Sequence[Record], indent: str) -> Iterator[str]:
    branches: dict[str, list[Record]] = {}
    for record in records:
        if record["parent"] == parent["folder"]:
            # Siblings share the pull requests in between; any other record has a branch of its own.
            branches.setdefault(record["via"] or record["folder"], []).append(record)
    for place, (via, found) in enumerate(branches.items()):
        last = place == len(branches) - 1
        branch, deeper = indent + ("└─ " if last else "├─ "), indent + ("   " if last else "│  ")
        if len(found) == 1:
            yield _line(found[0], branch)
            yield from _below(found[0], records, deeper)
            continue
        yield f"{'':8}{branch}{_numbers(via)}, no records"
        for number, record in enumerate(found, 1):
            yield _line(record, deeper + ("└─ " if number == len(found) else "├─ "))
            yield from _below(record, records, deeper + ("   " if number == len(found) else "│  "))


def _line(record: Record, branch: str) -> str:
    number = f" {_numbers(record['pr'])}" if record["pr"] else ""
    siblings_share = record["via"].count(" ") > 1
    via = f" via {_numbers(record['via'])}" if record["via"] and not siblings_share else ""
    return f"{record['published_bpb']}  {branch}{_name(record)}{number}{via}"


def _numbers(text: str) -> str:
    return ", ".join(f"#{number}" for number in text.split())


def _name(record: Record) -> str:
    return record["experiment"].removeprefix("records/") or record["folder"]


def steps(records: Sequence[Record]) -> str:
    """Return a table with a row for every record that builds on another, in the order of the tree."""
    known = {record["folder"]: record for record in records}
    configs: dict[str, Config] = {}
    rows = [step(record, known[record["parent"]], configs) for record in _depth_first(records, "")]
    return "\n".join([*STEPS_HEAD, *rows])


def _depth_first(records: Sequence[Record], parent: str) -> Iterator[Record]:
    for record in records:
        if record["parent"] == parent:
            if parent:
                yield record
            yield from _depth_first(records, record["folder"])


def step(record: Record, parent: Record, configs: dict[str, Config]) -> str:
    """Return the row of a record; `configs` are those that are composed already, by experiment."""
    number = f" (#{record['pr']})" if record["pr"] else ""
    name = f"`{_name(record)}`{number} on `{_name(parent)}`"
    return f"| {name} | {record['published_bpb']} | {difference(record, parent)} | {_changes(record, configs)} |"


def difference(record: Record, parent: Record) -> str:
    """Return the difference of two records' means with its interval, and whether the published seeds show it."""
    between = float(record["mean_bpb"]) - float(parent["mean_bpb"])
    number = f"{between:+.4f}".replace("-", "−")
    found = _welch(record, parent, between)
    if found is None:
        return f"{number}, one seed {'of the parent' if record['sd_bpb'] else 'alone'}"
    low, high = found.interval(CONFIDENCE)
    return f"{number} ± {(high - low) / 2:.4f}, {SHOWN if high < 0 or low > 0 else NOT_SHOWN}"


def _welch(record: Record, parent: Record, between: float) -> Comparison | None:
    """Return Welch's comparison from means and standard deviations; None if one of the two has one seed."""
    if not (record["sd_bpb"] and parent["sd_bpb"]):
        return None
    counts = [int(one["seeds"]) for one in (record, parent)]
    parts = [float(one["sd_bpb"]) ** 2 / n for one, n in zip((record, parent), counts, strict=True)]
    df = sum(parts) ** 2 / sum(part**2 / (n - 1) for part, n in zip(parts, counts, strict=True))
    return Comparison(between, math.sqrt(sum(parts)), df, WELCH)


def _changes(record: Record, configs: dict[str, Config]) -> str:
    found = [d for d in changed(record["experiment"], configs) if d.key not in TOLD_TWICE]
    if len(found) > MOST_SHOWN:
        return f"{_purpose(record['experiment'])}<br>{len(found)} settings: `golf why {_name(record)}`"
    return "<br>".join([_purpose(record["experiment"]), *map(_setting, found)])


def changed(experiment: str, configs: dict[str, Config]) -> list[Difference]:
    """Return the settings that `golf why` names between an experiment and what it builds on, both at record scale."""
    parent = parent_of(experiment)
    for name in (experiment, parent):
        if name not in configs:
            configs[name] = compose([f"experiment={name}", "scale=record"])
    return differences(configs[parent], configs[experiment])[0]


def _purpose(experiment: str) -> str:
    """Return the sentence at the head of an experiment's file, without pull request and score."""
    lines = (ROOT / f"conf/experiment/{experiment}.yaml").read_text(encoding="utf-8").splitlines()[1:]
    comment = " ".join(line[2:] for line in lines[: next(i for i, line in enumerate(lines) if line[0] != "#")])
    return re.sub(r"(\. Record \S+|, record \S+| \(PR #\d+\))?: 1\.\d+ bpb.*$", ".", comment)


def _setting(found: Difference) -> str:
    return f"`{found.key}` {_value(found.one)} → {_value(found.other)}"


def _value(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, dict):
        set_ones = {key: item for key, item in value.items() if item is not None}
        return ", ".join(f"{key}={_value(item)}" for key, item in set_ones.items()) or "on"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "; ".join(map(_value, value))
    return json.dumps(value).replace('"', "")
