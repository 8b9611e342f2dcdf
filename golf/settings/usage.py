"""The text of `golf/train.py --help`, made from the file names under conf/ alone.

Hydra's own help takes seconds because it imports Hydra and composes; this file imports neither Hydra nor torch.
"""

from __future__ import annotations

import sys
import textwrap
from collections import Counter

from golf.idea_folders import ideas
from golf.paths import ROOT

WIDTH = 118
DRY_RUN = "GOLF_DRY_RUN"  # environment variable by which --dry-run reaches Hydra's plugins

FLAGS = {
    "-m, --multirun": "run every combination of the values listed, as in optim.matrix_lr=0.02,0.04",
    "--variant OVERRIDES": "a variant of a sweep by a bundle of overrides in quotes; the first one is the reference",
    "--dry-run": "print runs, seconds and what has finished before, and run nothing",
    "--json": "print JSON at the end, and everything else as errors are (docs/json.md)",
    "--cfg job": "print the composed configuration and run nothing",
    "--hydra-help": "Hydra's own flags",
}


def options_of(group: str) -> list[str]:
    """Return the names of the options of a group, sorted: its files in conf/, and the ideas among the techniques."""
    folder = ROOT / "conf" / group
    outside = ideas() if group == "tech" else ()
    return sorted([*outside, *(str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("*.yaml"))])


def usage() -> str:
    """Return the ways to call, the flags, and every group with its options."""
    command = "golf train" if sys.argv[0] == "golf train" else "python golf/train.py"
    lines = [f"{command} [flag …] [group=option …] [group.setting=value …]", ""]
    lines += [f"  {flag:19} {what}" for flag, what in FLAGS.items()]
    lines += [
        "",
        "Groups and their options. tech takes a list; experiment= names a variant and +sweep= a set of runs:",
        "",
    ]
    for group in sorted(path.name for path in (ROOT / "conf").iterdir() if path.is_dir()):
        text = f"  {group:16} {', '.join(_in_folders(options_of(group)))}"
        lines.append(textwrap.fill(text, WIDTH, subsequent_indent=" " * 19, break_on_hyphens=False))
    lines += [
        "",
        "Every setting with its meaning, default and choices: golf help settings. Values of a run: --cfg job.",
    ]
    return "\n".join(lines)


def _in_folders(options: list[str]) -> list[str]:
    """Return the options, with one entry such as `records/… (50)` for all of a folder."""
    folders = Counter(folder for option in options if (folder := option.rpartition("/")[0]))
    return [name for name in options if "/" not in name] + [f"{name}/… ({n})" for name, n in sorted(folders.items())]
