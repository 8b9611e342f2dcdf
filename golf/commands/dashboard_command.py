"""Make the W&B views that compare seeds and variants.

    golf dashboard --project golf

The views are a workspace and a report: curves with mean and standard deviation over seconds, bars by variant, bytes
against score, and the computed table. --print needs neither an account nor a network.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys

from golf.commands.parsing import CommandParser
from golf.errors import GolfError


def parser() -> CommandParser:
    """Return the parser of `golf dashboard`."""
    made = CommandParser("dashboard", __doc__)
    project = os.environ.get("WANDB_PROJECT", "golf")
    made.add_argument("--project", default=project, help="W&B project (default: WANDB_PROJECT, or golf)")
    entity = "W&B team or user (default: WANDB_ENTITY, or the key's own)"
    made.add_argument("--entity", default=os.environ.get("WANDB_ENTITY"), help=entity)
    made.add_argument("--print", action="store_true", help="print the specification as JSON and send nothing")
    return made


def main(arguments: list[str]) -> int:
    """Make the views and print their addresses; the exit status is 1 if W&B refuses them."""
    args = parser().parse_intermixed_args(arguments)
    if importlib.util.find_spec("wandb_workspaces") is None:
        raise GolfError("this needs the package wandb-workspaces: `pip install 'golf[wandb]'`.")
    from golf.jobs.track import dashboard

    if args.print:
        print(json.dumps(dashboard.specification(args.entity or "ENTITY", args.project), indent=2))
        return 0
    import wandb

    try:
        entity = args.entity or wandb.Api().default_entity or ""
        print(dashboard.workspace(entity, args.project).save().url)
        print(dashboard.report(entity, args.project).save().url)
    except Exception as error:
        # The client raises exceptions of many kinds.
        print(f"error: W&B did not take the views ({' '.join(str(error).split())}).", file=sys.stderr)
        return 1
    return 0
