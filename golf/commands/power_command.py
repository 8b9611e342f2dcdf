"""Compute how many seeds it takes to find a difference.

    golf power --sigma 0.0007 --difference 0.003             # bits per byte
    golf power --sigma 0.0013 --difference 0.005 --nats      # nats per token
    golf power --runs multirun/9l-int8-1234abcd --difference 0.003    # standard deviation from finished runs
    golf power --sigma 0.009 --shared 0.8 --difference 0.006          # short runs, whose seeds move together

The level of the test and its margin come from the rules.
"""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING

from golf.commands.parsing import CommandParser
from golf.errors import GolfError

if TYPE_CHECKING:
    from golf.lab.report.table import Table
    from golf.settings.config import RulesConfig

SEEDS = (2, 3, 4, 5, 6, 8, 10, 16)


def main(arguments: list[str]) -> int:
    """Print the table of seeds, differences and power."""
    args = CommandParser("power", __doc__).parse_intermixed_args(arguments)
    from golf.lab.report.table import render
    from golf.settings.composition import rules_named

    if args.shared is not None and args.shared >= 1:
        raise GolfError(f"--shared {args.shared:g} cannot be a share of the variance: give one below 1.")
    if args.shared is not None and args.published:
        raise GolfError("A published score shares no seeds: leave --shared or --published out.")
    if args.variants < 2 or (args.variants > 2 and args.published):
        raise GolfError("--variants is 2 or more, and a published score is one of two: leave one of them out.")
    print(render(_table(args, rules_named(args.rules)), args.format), end="")
    return 0


def _table(args: argparse.Namespace, rules: RulesConfig) -> Table:
    from golf.bits import bits_per_byte
    from golf.lab.report.statistics import MOST_SD, detection_power, seeds_needed, smallest_difference
    from golf.lab.report.table import Column, Table

    unit = "nats" if args.nats else "bpb"
    sigma, source, bytes_per_token = _noise(args)
    shared = (_shared(args.runs) if args.runs and not args.published else 0.0) if args.shared is None else args.shared
    # What the runs of a seed share is in no difference, and two variants alone are compared as pairs where it shows.
    as_pairs = shared > 0 and args.variants == 2
    noise = sigma * math.sqrt((1 - shared) * (2 if as_pairs else 1))
    margin = rules.margin_nats
    if margin and not args.nats:
        margin = bits_per_byte(margin, 1, bytes_per_token)
    columns = (
        Column("seeds", "seeds"),
        Column(f"smallest_difference_{unit}", f"found {rules.power:.0%} of the time ({unit})", lambda v: f"{v:.4f}"),
        Column("in_sigma", "in sd", lambda v: f"{v:.1f}"),
        Column("power", f"chance to find {args.difference:g}" if args.difference else "", lambda v: f"{v:.2f}"),
    )
    # Holm's first and strictest step.
    settings = {"alpha": rules.alpha / (args.variants - 1), "margin": margin, "published": args.published or as_pairs}
    rows = []
    for seeds in SEEDS:
        smallest = smallest_difference(noise, seeds, power=rules.power, **settings)
        power = detection_power(args.difference, noise, seeds, **settings) if args.difference else None
        shown = smallest if math.isfinite(smallest) else None
        rows.append({"seeds": seeds, columns[1].key: shown, "in_sigma": shown and shown / sigma, "power": power})
    arms = "the variant" if args.published else f"each of the {'two' if args.variants == 2 else args.variants} variants"
    by = f" by more than {margin:.5f} {unit}" if margin else ""
    notes = [f"rules={rules.name}: better{by} at one-sided p < {rules.alpha:g}; sd {sigma:.5f} {unit}, {source}."]
    if args.variants > 2:
        notes.append(f"The level is that of Holm's first step over {args.variants - 1} comparisons.")
    if shared:
        notes.append(f"Runs of one seed share {shared:.2f} of the variance, which no difference contains.")
    if blank := [str(row["seeds"]) for row in rows if row["in_sigma"] is None]:
        most = f"no difference up to {MOST_SD:g} sd is found so often"
        notes.append(f"At {' and '.join(blank)} seeds {most}: take more seeds.")
    if args.difference:
        needed = seeds_needed(args.difference, noise, power=rules.power, **settings)
        purpose = f"find a difference of {args.difference:g} {unit} {rules.power:.0%} of the time."
        notes.insert(0, f"{needed} seeds of {arms} {purpose}")
    return Table(columns, rows, f"Seeds of {arms}", notes)


def _shared(runs: list[str]) -> float:
    """Return the share of the variance within variants that the runs of a seed have in common, if it shows; else 0."""
    from golf.lab.report.findings import judged
    from golf.lab.report.study import read_study
    from golf.settings.config import RulesConfig

    found = (v.comparison for v in judged(read_study(runs), RulesConfig()).verdicts.values())
    return max((getattr(comparison, "shared", 0.0) for comparison in found), default=0.0)


def _noise(args: argparse.Namespace) -> tuple[float, str, float]:
    """Return the standard deviation over seeds in the table's unit, its source in words, and bytes per token.

    Raises `GolfError` if none was given or measured.
    """
    from golf.lab.report.statistics import ROUNDING, pooled_sd
    from golf.lab.report.study import read_study

    if args.sigma is not None and args.runs:
        raise GolfError("--sigma and --runs are two sources of one number: give one of them.")
    if args.sigma is not None:
        return args.sigma, "as given", args.bytes_per_token
    if not args.runs:
        raise GolfError("How much seeds scatter is not said: give --sigma, or finished runs with --runs.")
    variants = read_study(args.runs).variants
    per_token = next((v.bytes_per_token for v in variants if v.bytes_per_token), None)
    pooled = pooled_sd([v.scores("final") for v in variants])
    if pooled is None or pooled[0] <= ROUNDING:
        raise GolfError("These runs have no two seeds of a variant that scored differently: give --sigma instead.")
    sigma, df = pooled
    if args.nats:
        if per_token is None:
            raise GolfError("These runs do not tell bytes per token: leave --nats out.")
        sigma *= math.log(2) * per_token
    return sigma, f"from runs with {df} degrees of freedom", per_token or args.bytes_per_token
