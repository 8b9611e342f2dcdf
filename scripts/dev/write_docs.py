"""Write the generated parts of docs/: `python scripts/dev/write_docs.py`.

docs/techniques.md has a row for every technique, from its file and from docs/techniques.yaml. docs/records.md has one
for every row of docs/records.csv. The prose of both and of docs/settings.md stands in pages/ beside this file. In other
pages a comment `<!-- quoted: PATH NAME -->` keeps the code block below it equal to a class or function of that file, or
without NAME to all of it.
"""

from __future__ import annotations

import ast
import csv
import dataclasses
import re
import sys
from collections import Counter
from collections.abc import Sequence
from inspect import getdoc
from pathlib import Path

import yaml

from golf.files import write_atomic
from golf.idea_folders import ideas
from golf.lab.report.public_records import public_records
from golf.lab.report.settings_catalogue import catalogue
from golf.paths import ROOT
from golf.registry import technique_types
from golf.training.techniques.base import (
    CHANGES_GRADIENT,
    CHANGES_INIT,
    CHANGES_LOSS,
    CHANGES_STEP,
    CHANGES_STORAGE,
    CHANGES_WEIGHTS,
    Technique,
)

QUOTED = re.compile(r"(<!-- quoted: (\S+)(?: (\w+))? -->\n\n```\w+\n).*?(```)", re.DOTALL)
CHANGES = {
    CHANGES_GRADIENT: "loss or gradient",
    CHANGES_INIT: "initial weights",
    CHANGES_WEIGHTS: "final weights",
    CHANGES_STORAGE: "storage",
    CHANGES_LOSS: "training loss",
    CHANGES_STEP: "steps of the optimizer",
}
RECORDS_HEAD = ["| record | `experiment=` | status | bpb | parameters | what differs |", "|---" * 6 + "|"]
PARAMETERS = ("parameters_there", "parameters_here")


def pages() -> dict[Path, str]:
    """Return the text that every generated page should have, by path."""
    found = {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").rglob("*.md"))}
    quoting = {path: QUOTED.sub(_with_quote, text) for path, text in found.items() if "<!-- quoted: " in text}
    generated = {
        ROOT / "docs/techniques.md": techniques_page(),
        ROOT / "docs/settings.md": settings_page(),
        ROOT / "docs/records.md": records_page(),
    }
    return {**generated, **quoting}


def _template(page: str) -> str:
    """Return the prose of a page, with places for what is generated."""
    return (ROOT / f"scripts/dev/pages/{page}.txt").read_text(encoding="utf-8")


def settings_page() -> str:
    """Return docs/settings.md: a table a group, a row a setting."""
    parts, grouped = list[str](), {name for effects in _effects().values() for name in effects}
    for group in catalogue():
        if group.name.removeprefix("tech.") in ideas().keys() - grouped:
            continue
        head = ["| setting | default | choices or range | meaning |", "|---" * 4 + "|"]
        rows = [
            _cells([f"`{s.key}`", f"`{s.default}`" if s.default else "", s.allowed, s.meaning]) for s in group.settings
        ]
        parts.append("\n".join([f"## {group.name or 'The run itself'}", "", group.about, "", *head, *rows, ""]))
    return _template("settings").format(tables="\n".join(parts))


def records_page() -> str:
    """Return docs/records.md, with a row for every record of docs/records.csv."""
    records = public_records()
    counts = Counter(record["status"] for record in records)
    return _template("records").format(
        **{status: counts[status] for status in ("exact", "documented", "frontier")},
        table="\n".join([*RECORDS_HEAD, *map(_record_row, records)]),
        notable="\n".join(notable_runs()),
    )


def notable_runs() -> list[str]:
    """Return the table of runs that the challenge keeps beside its records, from docs/notable.csv."""
    with (ROOT / "docs/notable.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    head = ["| `experiment=` | after | parameters there | here | what differs |", "|---" * 5 + "|"]
    cells = (
        [
            f"[`notable/{row['experiment']}`](../conf/experiment/notable/{row['experiment']}.yaml)",
            *(f"#{row['pr']}", *(f"{int(row[key]):,}" for key in PARAMETERS), row["what_differs"]),
        ]
        for row in rows
    )
    return [*head, *("| " + " | ".join(row) + " |" for row in cells)]


def _record_row(record: dict[str, str]) -> str:
    link = f"[`{record['experiment']}`](../conf/experiment/{record['experiment']}.yaml)"
    cells = [record["folder"], link, record["status"], record["published_bpb"], f"{int(record['parameters']):,}"]
    return "| " + " | ".join([*cells, record["what_differs"] or "–"]) + " |"


def techniques_page() -> str:
    """Return docs/techniques.md: a table a group, a row a technique."""
    groups = _effects()
    grouped = {name for effects in groups.values() for name in effects}
    # Ideas have pages of their own; those of several records stand here, too.
    if further := [name for name in sorted(technique_types()) if name not in {*grouped, *ideas()}]:
        groups["Further techniques"] = {name: {} for name in further}
    parts = []
    for group, effects in groups.items():
        head = ["| technique | what it is, settings | source | changes | effect |", "|---" * 5 + "|"]
        rows = [_row(technique_types()[name], effect) for name, effect in effects.items()]
        parts.append("\n".join([f"## {group}", "", *head, *rows, ""]))
    agree = [agrees for effects in groups.values() for one in effects.values() if (agrees := _agrees(one)) is not None]
    return _template("techniques").format(tables="\n".join(parts), agree=sum(agree), both=len(agree))


def _effects() -> dict[str, dict[str, dict[str, float | str]]]:
    """Return docs/techniques.yaml: what is known about the effect of each technique of the page, by group."""
    groups: dict[str, dict[str, dict[str, float | str]]] = yaml.safe_load(
        (ROOT / "docs/techniques.yaml").read_text(encoding="utf-8")
    )
    return groups


def _row(kind: type[Technique], effect: dict[str, float | str]) -> str:
    changes = CHANGES[kind.effect] + (", late switch" if kind.is_switch else "")
    cells = [
        f"[`{kind.name}`](../{kind.__module__.replace('.', '/')}.py)",
        " ".join([_description(kind), _settings(kind)]).strip(),
        kind.source,
        changes,
        _effect(effect),
    ]
    return _cells(cells)


def _cells(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _description(kind: type[Technique]) -> str:
    module = getdoc(sys.modules[kind.__module__]) or ""
    return " ".join(module.split("\n\n")[0].split())


def _settings(kind: type[Technique]) -> str:
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    texts = [f"{field.name}={_shown(field)}" for field in fields]
    # zsh takes brackets for a pattern unless they are quoted.
    return ", ".join(f"`'{text}'`" if "[" in text else f"`{text}`" for text in texts)


def _shown(field: dataclasses.Field) -> str:
    factory = field.default_factory
    value = field.default if factory is dataclasses.MISSING else factory()
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return f"{value:.3g}" if isinstance(value, float) else str(value).replace(" ", "")


def _agrees(effect: dict[str, float | str]) -> bool | None:
    """Tell whether the figure here has the published sign; None unless there are both."""
    here, published = effect.get("here"), effect.get("published_bpb")
    if not (isinstance(here, float) and isinstance(published, float)):
        return None
    return (here < 0) == (published < 0)


def _effect(effect: dict[str, float | str]) -> str:
    here, published = effect.get("here"), effect.get("published")
    sign = {None: "", True: " (the published sign)", False: " (**not the published sign**)"}[_agrees(effect)]
    parts = [f"here {here:+.3f}{sign}".replace("-", "−")] if isinstance(here, float) else []
    return "; ".join([*parts, str(published)] if published else parts)


def _with_quote(match: re.Match[str]) -> str:
    opening, path, name, closing = match.groups()
    source = (ROOT / path).read_text(encoding="utf-8")
    return opening + (_class_source(source, name) if name else source) + closing


def _class_source(source: str, name: str) -> str:
    nodes = ast.parse(source).body
    node = next(node for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name)
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return "\n".join(source.splitlines()[first - 1 : node.end_lineno]) + "\n"


if __name__ == "__main__":
    for page, text in pages().items():
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            write_atomic(page, text)
            print(f"wrote {page.relative_to(ROOT)}")
