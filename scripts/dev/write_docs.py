"""Write the generated parts of docs/: `python scripts/dev/write_docs.py`.

docs/techniques.md has a row for every technique, from its file and from docs/techniques.yaml. In other pages a comment
`<!-- quoted: PATH NAME -->` keeps the code block below it equal to a class of that file, or without NAME to all of it.
"""

from __future__ import annotations

import ast
import dataclasses
import re
import sys
from inspect import getdoc
from pathlib import Path

import yaml

from golf.files import write_atomic
from golf.paths import ROOT
from golf.registry import technique_types
from golf.training.techniques.base import CHANGES_GRADIENT, CHANGES_INIT, CHANGES_STORAGE, CHANGES_WEIGHTS, Technique

QUOTED = re.compile(r"(<!-- quoted: (\S+)(?: (\w+))? -->\n\n```\w+\n).*?(```)", re.DOTALL)
CHANGES = {
    CHANGES_GRADIENT: "loss or gradient",
    CHANGES_INIT: "initial weights",
    CHANGES_WEIGHTS: "final weights",
    CHANGES_STORAGE: "storage",
}
INTRODUCTION = """\
# Techniques

One file each in `golf/training/techniques/`, any number at a time. What is not selected leaves no parameter and no
trace in the graph. [adding_a_technique.md](adding_a_technique.md) adds one in three files.

```bash
python golf/train.py 'tech=[bigram,xsa]' tech.xsa.last_n=2              # select, and set
python golf/train.py experiment=naive_baseline +tech=lawa               # add to an experiment's
python golf/train.py experiment=gold6_11l 'drop=[xsa]'                  # take one out of an experiment
python golf/train.py -m experiment=gold6_11l 'drop=[],[xsa],[bigram]'   # leave-one-out by hand
python golf/train.py +sweep=add_one experiment=gold6_11l                # each on its own, with what it needs
```

`drop` also takes plain settings by name, such as `weight_decay` or `grad_clip`. The result is the same variant as if
it had never been selected.

"Changes" is what every run checks before or after training. The effect is in bits per byte, with the technique less
without it, so that negative is better. "Here" is the 11-layer stack at laptop scale: 86 steps, one seed, values below
0.02 are hints ([log](benchmarks_log.md#the-11-layer-stack-against-the-baseline-at-laptop-scale)). "PR #670" is what
that pull request measured ([study](studies/negative_results.md)).
"""
PLAIN_SETTINGS = """\
## Plain settings

Much needs no technique: `optim=parallel_muon`, `optim.muon_wd`, `optim.grad_clip_norm`, `schedule=warmdown_fraction`,
`schedule.min_lr`, `model.num_kv_heads`, `model.mlp_hidden`, `model.tie_embeddings`, `model.unet_skips`,
`model.attention`. In the same experiment weight decay was worth −0.005, gradient clipping −0.036, and two more layers
with a wider MLP −0.002.

This page is written by `scripts/dev/write_docs.py` from the techniques' files and `docs/techniques.yaml`.
"""


def pages() -> dict[Path, str]:
    """Return the text that every generated page should have, by path."""
    found = {path: path.read_text() for path in sorted((ROOT / "docs").rglob("*.md"))}
    quoting = {path: QUOTED.sub(_with_quote, text) for path, text in found.items() if "<!-- quoted: " in text}
    return {ROOT / "docs/techniques.md": techniques_page(), **quoting}


def techniques_page() -> str:
    """Return docs/techniques.md: a table a group, a row a technique."""
    groups = yaml.safe_load((ROOT / "docs/techniques.yaml").read_text())
    parts = [INTRODUCTION]
    for group, effects in groups.items():
        head = ["| technique | what it is, settings | source | changes | effect |", "|---" * 5 + "|"]
        rows = [_row(technique_types()[name], effect) for name, effect in effects.items()]
        parts.append("\n".join([f"## {group}", "", *head, *rows, ""]))
    return "\n".join([*parts, PLAIN_SETTINGS])


def _row(kind: type[Technique], effect: dict[str, float | str]) -> str:
    changes = CHANGES[kind.effect] + (", late switch" if kind.is_switch else "")
    cells = [
        f"[`{kind.name}`](../golf/training/techniques/{kind.name}.py)",
        " ".join([_description(kind), _settings(kind)]).strip(),
        kind.source,
        changes,
        _effect(effect),
    ]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _description(kind: type[Technique]) -> str:
    module = getdoc(sys.modules[kind.__module__]) or ""
    return " ".join(module.split("\n\n")[0].split())


def _settings(kind: type[Technique]) -> str:
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    texts = [f"{field.name}={_shown(field)}" for field in fields]
    return ", ".join(f"`'{text}'`" if "[" in text else f"`{text}`" for text in texts)  # as zsh wants it typed


def _shown(field: dataclasses.Field) -> str:
    factory = field.default_factory
    value = field.default if factory is dataclasses.MISSING else factory()
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return f"{value:.3g}" if isinstance(value, float) else str(value).replace(" ", "")


def _effect(effect: dict[str, float | str]) -> str:
    here, published = effect.get("here"), effect.get("published")
    parts = [f"here {here:+.3f}".replace("-", "−")] if isinstance(here, float) else []
    return "; ".join([*parts, f"PR #670: {published}"] if published else parts)


def _with_quote(match: re.Match[str]) -> str:
    opening, path, name, closing = match.groups()
    source = (ROOT / path).read_text()
    return opening + (_class_source(source, name) if name else source) + closing


def _class_source(source: str, name: str) -> str:
    nodes = ast.parse(source).body
    node = next(node for node in nodes if isinstance(node, ast.ClassDef) and node.name == name)
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return "\n".join(source.splitlines()[first - 1 : node.end_lineno]) + "\n"


if __name__ == "__main__":
    for page, text in pages().items():
        if not page.exists() or page.read_text() != text:
            write_atomic(page, text)
            print(f"wrote {page.relative_to(ROOT)}")
