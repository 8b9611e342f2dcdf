"""The text of `golf/train.py --help`, made from the file names under conf/ alone.

Hydra's own help takes seconds because it imports Hydra and composes; this file imports neither Hydra nor torch.
"""

from __future__ import annotations

from golf.paths import ROOT

FLAGS = {
    "-m, --multirun": "run every combination of the values listed, as in optim.matrix_lr=0.02,0.04",
    "--cfg job": "print the composed configuration and run nothing",
    "--why A B": "say which settings two runs or lists of overrides differ in",
    "--hydra-help": "Hydra's own flags",
}


def usage() -> str:
    """Return the ways to call, the flags, and every group with its options."""
    lines = ["python golf/train.py [flag …] [group=option …] [group.setting=value …]", ""]
    lines += [f"  {flag:16} {what}" for flag, what in FLAGS.items()]
    lines += [
        "",
        "Groups and their options. tech takes a list; experiment= names a variant and +sweep= a set of runs:",
        "",
    ]
    for folder in sorted(path for path in (ROOT / "conf").iterdir() if path.is_dir()):
        options = sorted(str(p.relative_to(folder).with_suffix("")) for p in folder.rglob("*.yaml"))
        lines.append(f"  {folder.name:16} {', '.join(options)}")
    lines += ["", "Every setting with its unit and choices: golf/settings/config.py. The values of a run: --cfg job."]
    return "\n".join(lines)
