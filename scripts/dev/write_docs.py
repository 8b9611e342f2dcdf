"""Write the generated parts of docs/: `python scripts/dev/write_docs.py`.

docs/techniques.md has a row for every technique, from its file and from docs/techniques.yaml. docs/records.md shows
docs/records.csv and what each record changed. In other pages a comment
`<!-- quoted: PATH NAME -->` keeps the code block below it equal to a class or function of that file, or without NAME
to all of it.
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

sys.path.insert(0, str(ROOT))
from scripts.dev import record_steps

QUOTED = re.compile(r"(<!-- quoted: (\S+)(?: (\w+))? -->\n\n```\w+\n).*?(```)", re.DOTALL)
CHANGES = {
    CHANGES_GRADIENT: "loss or gradient",
    CHANGES_INIT: "initial weights",
    CHANGES_WEIGHTS: "final weights",
    CHANGES_STORAGE: "storage",
    CHANGES_LOSS: "training loss",
    CHANGES_STEP: "steps of the optimizer",
}
INTRODUCTION = """\
# Techniques

Each is one file, in `golf/training/techniques/` or in a folder of [`ideas/`](../ideas/README.md), and any number can be
selected together. A technique that is not selected leaves no parameter and no trace in the graph.
[adding_a_technique.md](adding_a_technique.md) adds one in three files.

```bash
python golf/train.py 'tech=[bigram,xsa]' tech.xsa.last_n=2              # select, and set
python golf/train.py experiment=naive_baseline +tech=lawa               # add to an experiment's
python golf/train.py 'tech=[sets/april,smear]'                          # the records' since 5 April, and one more
python golf/train.py experiment=gold6_11l 'drop=[xsa]'                  # take one out of an experiment
python golf/train.py -m experiment=gold6_11l 'drop=[],[xsa],[bigram]'   # leave-one-out by hand
python golf/train.py +sweep=add_one experiment=gold6_11l                # each on its own, with what it needs
```

`drop` also takes plain settings by name, such as `weight_decay` or `grad_clip`. The result is the same variant as if
it had never been selected.

"Changes" is the effect that every run checks before or after training. "Effect" is bits per byte with the technique
minus without it: negative is better. "Here" is the 11-layer stack at laptop scale with 86 steps and one seed, so values
below 0.02 are hints ([log](benchmarks_log.md#the-11-layer-stack-against-the-baseline-at-laptop-scale)). A pull request
is named with what it measured on its own stack, mostly with one seed. PR #670 lists what failed on one stack
([study](studies/negative_results.md)), so its figures are those of one that had much already.
"""
SETTINGS_INTRODUCTION = """\
# Settings

Every setting of a run, as `golf help settings` prints it; `golf help settings weight decay` searches. A setting is set
as `key=value` behind `golf train`. Defaults are those of the schema, which is the public baseline at record scale: a
scale or an option of a group may set others, and `golf train --cfg job` prints the values of a run.

This page is written by `scripts/dev/write_docs.py` from `golf/settings/` and the techniques' files.
"""
PLAIN_SETTINGS = """\
## Plain settings

Much needs no technique: `optim=parallel_muon`, `optim.muon_wd`, `optim.grad_clip_norm`, `schedule=warmdown_fraction`,
`schedule.min_lr`, `model.num_kv_heads`, `model.mlp_hidden`, `model.tie_embeddings`, `model.unet_skips`,
`model.attention`. In the same experiment weight decay was worth −0.005, gradient clipping −0.036, and two more layers
with a wider MLP −0.002.

Settings of the optimizer that public records from April on use:

| setting | effect |
|---|---|
| `optim.muon_row_normalize=true` | MuonEq-R: every row of the update has unit norm before Newton-Schulz |
| `optim.muon_coefficients=polar_express` | coefficients of its own for each of five Newton-Schulz iterations |
| `optim.muon_momentum_dtype=bf16` | Muon's momentum as the scripts with parameter banks keep it |
| `optim.adam_moment_dtype=fp32` | Adam's moments in float32 for an embedding in bf16, too |
| `schedule.muon_wd_taper_final=0.5` | Muon's weight decay falls to half between `muon_wd_taper_start` and the end |
| `'schedule.weight_decay_factors=[1,0.5]'` | all decays fall to half, from `weight_decay_shares` on |

Warm-up steps leave nothing behind: weights, momentum, moments and random state are restored before the clock starts.
The public scripts with parameter banks (records 2026-04-10 to 2026-04-29) restore all of it but Muon's momentum, so
that their first timed step carries that of the warm-up.

## Stages

A run may begin with short sequences, small batches or both:

```bash
python golf/train.py scale=laptop 'schedule.stages=[{until: 0.3, seq_len: 64}, {until: 0.6, seq_len: 128}, {}]'
```

A stage ends at the share `until` of the clock, or of the steps where no clock ends the run. What a stage leaves out is
that of `data`. Loaders read rows of `data.train_seq_len`, the longest, and the other stages cut them, so that the
tokens come in one order whatever the stages are. A smaller or larger `batch_tokens` is fewer or more micro-batches of
one size. In rows of packed documents a stage's length is the most tokens of a document that see each other. Learning
rates follow the run and not the stage; `schedule.stage_warmup_steps=10` lets them rise over the first ten steps of each
new stage. The warm-up runs every length with every set of late switches, so that nothing is compiled under the clock.
Plan, log and table count the tokens that were read, a checkpoint resumes in its stage, and a stage without a step makes
the run void. Lengths that grow are those of PR #2014, batches that grow those of PR #875.

This page is written by `scripts/dev/write_docs.py` from the techniques' files and `docs/techniques.yaml`.
"""
RECORDS = """\
# Public records

The game: the best language model in 16,000,000 bytes, trained in ten minutes on 8×H100, scored in bits per byte (bpb),
lower is better. In six weeks 46 records of the ten-minute track of openai/parameter-golf took it from 1.2244 to 1.0611.
Unmerged runs of 30 April and 1 May, {frontier} of them here, reach 1.0565. This page shows what each built on and what
it changed. All are experiments of Golf, so that every step can be planned, repeated or taken apart.

```bash
golf why 2026-04-27_caseops_lqer_9hp                     # what a record changed in the one that it builds on
golf plan experiment=records/2026-03-22_11l_gptq_lite scale=record
python golf/train.py experiment=records/2026-04-05_sp8192_sdclip_loop45x2 scale=record
```

## The tree

A record stands below the one that its README builds on, with its published score and its pull request. *Via* names pull
requests in between that are no records. Where a README names none or several, it is the one with the nearest settings:
that is so for the two int6 records of 19 March with #65 behind them, for #2014, whose README compares with #1855 and
takes ideas from #1953, and for #2135, whose base #2130 calls #1797 its own.

```
{tree}
```

## What each step changed

A difference is that of the means of the published seeds, with its 90 % interval by Welch's test where both sides have
two seeds or more: {measured} of {steps_in_all} steps. *Shown* says that the interval leaves out zero. {not_shown} are
**not shown**: their seeds do not tell them from noise. With one seed nobody can tell. A step is worth all of its
settings together, and only an ablation tells which of them counts ([how](sweeps.md)).

How large is noise? 2026-04-22 has the settings of its parent to the last digit, and its five best of seven seeds are
0.0010 better. The baseline's twelve repeats on today's validation split scatter by 0.0011 (mean 1.2271, from which
the differences are taken). Most steps from 13 April on are of that size.

What taught most:

- **Scoring** with overlapping windows is one setting and 0.035 (#50). Training on text that has just been scored, with
  attention within documents, came with 0.012 (#1530).
- **Bytes become parameters.** Six bits in place of eight buy an MLP three times as wide (19 March), eleven layers
  (#198), then four times as wide with strong weight decay that compresses better (#1218).
- **A larger vocabulary** came with the two largest steps of April: 4,096 tokens (#1218) and 8,192 (#1394).
- **Depth for no bytes**: layers run two or three times (#1285, #1394).
- **From mid-April on** capitals as operators (#1729) and a gate on every head (#1736) stand out. The rest is many small
  numbers.

– is a setting that is not set, or one of something that is off.

{start_of_steps}
{steps}
{end_of_steps}

## The presets

{exact} are exact and {documented} documented.

- **exact**: every setting that is known to change the score is the record's. Random numbers, their order and kernels
  are not. Whether the score is reached is unknown: none of these was trained here at full size.
- **documented**: the last column says what differs; "there" is the record's script.
- **frontier**: documented, and in no branch of the public repository. The leaderboard of 2 May (PR #2146) has all of
  them but PR #2140.

Three differences recur. *48 scalars*: the script also keeps λ and ρ for the eight layers without lanes, where nothing
reads them. *Queue*: the script gives a document to whichever rank is free, Golf deals documents out by planned times.
*Warm momentum*: the script starts training with Muon's momentum of the warm-up steps; here it is restored.

[records_settings.csv](records_settings.csv) compares {settings} settings that logs or scripts of {compared} records
print with what the presets compose to. {same} are the same, {other} of them under another name or in another unit.
{idle} are off on both sides or without effect there, and {different} differ as the last column says. Rows of zeros had
no print to compare with.

```bash
python scripts/dev/compare_records.py    # needs ../shared/reference/record_settings.json
```

With `budget.train_seconds=0` the warm-down of presets from April on is computed in whole steps: its multipliers differ
from the scripts' by up to 0.03 in a run of 24 steps, and by nothing with a time budget.

The number of parameters is the published one and is compared by a test. Scores are bits per byte as the challenge's
table has them.
"""
START_OF_STEPS, END_OF_STEPS = "<!-- steps: scripts/dev/record_steps.py -->", "<!-- end of steps -->"
NOTABLE = "The challenge keeps a board for what is notable rather than best. These experiments are after such runs:"
PARAMETERS = ("parameters_there", "parameters_here")
RECORDS_END = [
    "",
    "This page is written by `scripts/dev/write_docs.py` from `docs/records.csv` and `docs/notable.csv`.",
    "",
]


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


def settings_page() -> str:
    """Return docs/settings.md: a table a group, a row a setting."""
    parts, grouped = [SETTINGS_INTRODUCTION], {name for effects in _effects().values() for name in effects}
    for group in catalogue():
        if group.name.removeprefix("tech.") in ideas().keys() - grouped:
            continue
        head = ["| setting | default | choices or range | meaning |", "|---" * 4 + "|"]
        rows = [
            _cells([f"`{s.key}`", f"`{s.default}`" if s.default else "", s.allowed, s.meaning]) for s in group.settings
        ]
        parts.append("\n".join([f"## {group.name or 'The run itself'}", "", group.about, "", *head, *rows, ""]))
    return "\n".join(parts)


def records_page(steps: str | None = None) -> str:
    """Return docs/records.md: tree, steps and table of docs/records.csv.

    Composing the `steps` takes half a minute; those that the page has are kept by default.
    """
    page, records = ROOT / "docs/records.md", public_records()
    steps = (
        steps or page.read_text(encoding="utf-8").partition(f"{START_OF_STEPS}\n")[2].partition(f"\n{END_OF_STEPS}")[0]
    )
    counts = Counter(record["status"] for record in records)
    introduction = RECORDS.format(
        **{status: counts[status] for status in ("exact", "documented", "frontier")},
        **_compared(),
        tree=record_steps.tree(records),
        steps=steps,
        start_of_steps=START_OF_STEPS,
        end_of_steps=END_OF_STEPS,
        steps_in_all=len(records) - 1,
        measured=steps.count(" ± "),
        not_shown=steps.count(record_steps.NOT_SHOWN),
    )
    head = ["| record | `experiment=` | status | bpb | parameters | what differs |", "|---" * 6 + "|"]
    return "\n".join([introduction, *head, *map(_record_row, records), *notable_runs(), *RECORDS_END])


def notable_runs() -> list[str]:
    """Return the lines of the section on runs that the challenge keeps beside its records, from docs/notable.csv."""
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
    return ["", "## Notable runs", "", NOTABLE, "", *head, *("| " + " | ".join(row) + " |" for row in cells)]


def _compared() -> dict[str, str]:
    """Return the sums of docs/records_settings.csv, with commas between thousands."""
    with (ROOT / "docs/records_settings.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    sums = Counter({key: sum(int(row[key]) for row in rows) for key in rows[0] if key not in ("folder", "differences")})
    sums["compared"] = sum(row["settings"] != "0" for row in rows)
    sums["same"] = sums["equal"] + sums["another_form"] + sums["another_log"]
    sums["other"], sums["idle"] = sums["another_form"], sums["off"] + sums["no_effect"]
    return {key: f"{value:,}" for key, value in sums.items()}


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
    parts = [INTRODUCTION]
    for group, effects in groups.items():
        head = ["| technique | what it is, settings | source | changes | effect |", "|---" * 5 + "|"]
        rows = [_row(technique_types()[name], effect) for name, effect in effects.items()]
        parts.append("\n".join([f"## {group}", "", *head, *rows, ""]))
    return "\n".join([*parts, PLAIN_SETTINGS])


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


def _effect(effect: dict[str, float | str]) -> str:
    here, published = effect.get("here"), effect.get("published")
    parts = [f"here {here:+.3f}".replace("-", "−")] if isinstance(here, float) else []
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
    written = pages() | {ROOT / "docs/records.md": records_page(record_steps.steps(public_records()))}
    for page, text in written.items():
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            write_atomic(page, text)
            print(f"wrote {page.relative_to(ROOT)}")
