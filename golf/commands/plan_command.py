"""Predict bytes, steps and seconds of a run before it starts.

The plan shows parameters and bytes by class, bytes of the artifact with a 95 % interval, bytes of the script, headroom
under the cap, floating-point operations, and the steps and seconds that your finished runs imply.

    golf plan model=11l quant=int6_mixed
    golf plan model=9l --solve model.mlp_hidden     # the largest value that fits under the cap
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from golf.commands.parsing import CommandParser

if TYPE_CHECKING:
    from golf.plan.plan import Plan


def parser() -> CommandParser:
    """Return the parser of `golf plan`."""
    made = CommandParser("plan", __doc__)
    made.add_argument("overrides", nargs="*", help="overrides as for golf train")
    made.add_argument("--solve", metavar="KEY", help="find the value of this setting that just fits under the cap")
    margin = "bytes to leave free under the cap (default: half the interval's width)"
    made.add_argument("--margin", type=int, metavar="BYTES", help=margin)
    multiple = "solve for a multiple of N, if the setting is a whole number (default: 1)"
    made.add_argument("--multiple-of", type=int, default=1, metavar="N", help=multiple)
    made.add_argument("--json", action="store_true", help="print JSON for programs")
    return made


def main(arguments: Sequence[str]) -> int:
    """Print the plan of the run that the overrides describe."""
    args = parser().parse_intermixed_args(arguments)
    from golf.plan.history import finished_runs
    from golf.plan.plan import make_plan
    from golf.plan.solve import solve
    from golf.run.folder import runs_root
    from golf.settings.composition import compose

    history = finished_runs(runs_root())
    overrides, found = args.overrides, []
    if args.solve:
        options = {"margin_bytes": args.margin, "multiple_of": args.multiple_of}
        found = [solve(overrides, args.solve, history, **options).override]
    cfg = compose([*overrides, *found])
    _show(make_plan(cfg, history), cfg.name, args.json)
    if found and not args.json:
        print(f"solved     {found[0]}")
    return 0


def _show(plan: Plan, title: str, as_json: bool) -> None:
    from rich.console import Console

    from golf.plan.lines import as_dict, plan_lines, plan_table

    if as_json:
        print(json.dumps(as_dict(plan), indent=2))
        return
    Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 140).print(plan_table(plan, title))
    print("\n".join(plan_lines(plan)))
