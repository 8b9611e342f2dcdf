"""Predict bytes, steps and seconds of a run before it starts.

The plan shows parameters and bytes by class, bytes of the artifact with a 95 % interval, bytes of the script, headroom
under the cap, floating-point operations, and the steps and seconds that your finished runs imply.

    golf plan model=11l quant=int6_mixed
    golf plan model=9l --solve model.mlp_hidden     # the largest value that fits under the cap
    golf plan experiment=pr593_11l --on 8xh100      # steps, memory and scoring on a machine that is not here
    golf plan model=4l --on here                    # steps in the time on this machine, by a probe of 20 steps
"""

from __future__ import annotations

import argparse
import math
import sys
from typing import TYPE_CHECKING

from golf.commands.parsing import CommandParser
from golf.errors import GolfError
from golf.words import answer, listed

HERE = "here"  # value of --on

if TYPE_CHECKING:
    from golf.lab.plan.plan import Plan
    from golf.lab.plan.seconds import StepTime
    from golf.settings.config import Config


def main(arguments: list[str]) -> int:
    """Print the plan of the run that the overrides describe."""
    args = CommandParser("plan", __doc__).parse_intermixed_args(arguments)
    refuse_senseless(args)
    from golf.settings.composition import refuse_mistakes
    from golf.settings.mistakes import refuse_unknown_key

    # Mistakes are told before torch is imported.
    refuse_mistakes(args.overrides)
    if args.solve:
        refuse_unknown_key(args.solve)
    from golf.lab.plan.history import finished_runs
    from golf.lab.plan.machines import overrides_on, parse_machine
    from golf.lab.plan.plan import make_plan
    from golf.lab.plan.solve import Limits, solve
    from golf.run.folder import runs_root
    from golf.settings.composition import compose
    from golf.settings.consistency import warnings
    from golf.settings.hardware import assumed
    from golf.settings.overruled import replaced_by_scale

    # An empty name is that of a shell's variable that is not set.
    machine = parse_machine(args.on) if args.on not in (None, HERE) else None
    if machine is None and (args.usd_per_hour is not None or args.min_steps):
        raise GolfError("--usd-per-hour and --min-steps are about a GPU machine: name it, such as --on 8xh100.")
    history = finished_runs(runs_root())
    # `auto` settings have to be chosen for the planned machine, not for this one.
    with assumed(machine.hardware() if machine else None):
        overrides, solved = overrides_on(machine, args.overrides), []
        if args.solve:
            limits = Limits(machine, args.min_steps)
            solved = [solve(overrides, args.solve, history, limits=limits, multiple_of=args.multiple_of)]
        cfg = compose([*overrides, *solved])
        step_time = _probed(cfg) if args.on == HERE else None
        plan = make_plan(cfg, history, machine=machine, usd_per_hour=args.usd_per_hour, step_time=step_time)
        _show(cfg, plan, args.json)
        for remark in [*(f"note: {sentence}" for sentence in warnings(cfg)), *replaced_by_scale(overrides, cfg)]:
            print(remark, file=sys.stderr if args.json else sys.stdout)
    if solved and not args.json:
        print(f"solved     {solved[0]}")
    return 0


def refuse_senseless(args: argparse.Namespace) -> None:
    """Raise `GolfError` for options with values that mean nothing, and for those of --solve without it."""
    if args.usd_per_hour is not None and not 0 < args.usd_per_hour < math.inf:
        raise GolfError(f"--usd-per-hour {args.usd_per_hour:g} is no price: write dollars above zero.")
    least = {"--multiple-of": (args.multiple_of, 1), "--min-steps": (args.min_steps, 0)}
    for option, (value, limit) in least.items():
        if value < limit:
            raise GolfError(f"{option} {value} has to be at least {limit}.")
    limits = {"--min-steps": args.min_steps, "--multiple-of": args.multiple_of > 1}
    if not args.solve and any(limits.values()):
        given = listed([option for option, is_given in limits.items() if is_given])
        raise GolfError(f"{given}: for --solve only, and no setting is named. Add --solve model.mlp_hidden, say.")


def _probed(cfg: Config) -> StepTime:
    from golf.lab.plan.probe import probed_step_time
    from golf.system import tune_allocator

    if cfg.launch.device == "cpu":
        tune_allocator()
    return probed_step_time(cfg)


def _show(cfg: Config, plan: Plan, as_json: bool) -> None:
    from golf.lab.plan.lines import as_dict, plan_lines, plan_table
    from golf.lab.report.table import render

    if as_json:
        print(answer(as_dict(plan)))
        return
    print(render(plan_table(plan, cfg.name), "text"), end="")
    print("\n".join(plan_lines(cfg, plan)))
