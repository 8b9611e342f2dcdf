"""What a run will be before it starts: `python scripts/plan.py [overrides]`, overrides as for golf/train.py.

Parameters and bytes by class, bytes of the artifact as a 95 % interval, code, headroom under the cap, operations,
steps and seconds as far as your finished runs tell. `--solve model.mlp_hidden` finds the value that just fits.
"""

import argparse
import json
import sys

from rich.console import Console

from golf.errors import GolfError
from golf.plan.history import finished_runs
from golf.plan.lines import as_dict, plan_lines, plan_table
from golf.plan.plan import Plan, make_plan
from golf.plan.solve import solve
from golf.run.folder import runs_root
from golf.settings.composition import compose


def show(plan: Plan, title: str, as_json: bool) -> None:
    if as_json:
        print(json.dumps(as_dict(plan), indent=2))
        return
    Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 140).print(plan_table(plan, title))
    print("\n".join(plan_lines(plan)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", help="as for golf/train.py")
    parser.add_argument("--solve", metavar="KEY", help="find the value of this setting that just fits under the cap")
    parser.add_argument("--margin", type=int, metavar="BYTES", help="left free (default: half the interval's width)")
    parser.add_argument("--multiple-of", type=int, default=1, metavar="N", help="of the solved value, if it is whole")
    parser.add_argument("--json", action="store_true", help="for programs")
    arguments = parser.parse_intermixed_args()
    try:
        history = finished_runs(runs_root())
        overrides, found = arguments.overrides, []
        if arguments.solve:
            options = {"margin_bytes": arguments.margin, "multiple_of": arguments.multiple_of}
            found = [solve(overrides, arguments.solve, history, **options).override]
        cfg = compose([*overrides, *found])
        show(make_plan(cfg, history), cfg.name, arguments.json)
    except GolfError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if found and not arguments.json:
        print(f"solved     {found[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
