"""How many seeds a difference needs, and what a number of seeds can find.

    python scripts/power.py --sigma 0.0007 --difference 0.003             # bits per byte
    python scripts/power.py --sigma 0.0013 --difference 0.005 --nats      # nats per token
    python scripts/power.py --runs multirun/9l-int8-1234abcd --difference 0.003    # sd from finished runs

The noise may be given or be measured on finished runs; the level and perhaps a margin come from a rule (`--rules`).
"""

from __future__ import annotations

import argparse
import math
import sys

from golf.bits import bits_per_byte
from golf.errors import GolfError
from golf.report.statistics import detection_power, pooled_sd, seeds_needed, smallest_difference
from golf.report.study import read_study
from golf.report.table import FORMATS, Column, Table, render
from golf.settings.composition import rules_named
from golf.settings.config import RulesConfig

SP1024_BYTES_PER_TOKEN = 2.43593  # FineWeb at vocabulary 1024
SEEDS = (2, 3, 4, 5, 6, 8, 10, 16)


def main(arguments: list[str] | None = None) -> int:
    args = _parser().parse_args(arguments)
    try:
        print(render(_table(args, rules_named(args.rules)), args.format), end="")
    except GolfError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _table(args: argparse.Namespace, rules: RulesConfig) -> Table:
    unit = "nats" if args.nats else "bpb"
    sigma, source = _noise(args)
    margin = rules.margin_nats
    if margin and not args.nats:
        margin = bits_per_byte(margin, 1, args.bytes_per_token)
    columns = (
        Column("seeds", "seeds"),
        Column(f"smallest_difference_{unit}", f"found {rules.power:.0%} of the time ({unit})", lambda v: f"{v:.4f}"),
        Column("in_sigma", "in sd", lambda v: f"{v:.1f}"),
        Column("power", f"chance to find {args.difference:g}" if args.difference else "", lambda v: f"{v:.2f}"),
    )
    settings = {"alpha": rules.alpha, "margin": margin, "published": args.published}
    rows = []
    for seeds in SEEDS:
        smallest = smallest_difference(sigma, seeds, power=rules.power, **settings)
        power = detection_power(args.difference, sigma, seeds, **settings) if args.difference else None
        rows.append({"seeds": seeds, columns[1].key: smallest, "in_sigma": smallest / sigma, "power": power})
    arms = "of the variant" if args.published else "of each of the two variants"
    by = f" by more than {margin:.5f} {unit}" if margin else ""
    notes = [f"rules={rules.name}: better{by} at one-sided p < {rules.alpha:g}; sd {sigma:.5f} {unit}, {source}."]
    if args.difference:
        needed = seeds_needed(args.difference, sigma, power=rules.power, **settings)
        notes.insert(
            0, f"{needed} seeds {arms} find a difference of {args.difference:g} {unit} {rules.power:.0%} of the time."
        )
    return Table(columns, rows, f"Seeds {arms}", notes)


def _noise(args: argparse.Namespace) -> tuple[float, str]:
    if args.sigma is not None:
        if not (math.isfinite(args.sigma) and args.sigma > 0):
            raise GolfError(f"--sigma {args.sigma:g} cannot be a standard deviation: give one above 0.")
        return args.sigma, "as given"
    if not args.runs:
        raise GolfError("How much seeds scatter is not said: give --sigma, or finished runs with --runs.")
    variants = read_study(args.runs).variants
    per_token = next((v.bytes_per_token for v in variants if v.bytes_per_token), None)
    pooled = pooled_sd([v.scores("final") for v in variants])
    if pooled is None or pooled[0] == 0:
        raise GolfError("These runs have no two seeds of a variant that scored differently: give --sigma instead.")
    sigma, df = pooled
    if args.nats:
        if per_token is None:
            raise GolfError("These runs do not tell bytes per token: leave --nats out.")
        sigma *= math.log(2) * per_token
    elif per_token:
        args.bytes_per_token = per_token
    return sigma, f"from runs with {df} degrees of freedom"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sigma", type=float, metavar="SD", help="standard deviation over seeds")
    parser.add_argument("--runs", nargs="+", metavar="WHAT", help="measure it on these sweeps or folders instead")
    parser.add_argument("--difference", type=float, metavar="D", help="the improvement hoped for")
    parser.add_argument("--nats", action="store_true", help="everything in nats per token instead of bits per byte")
    parser.add_argument("--published", action="store_true", help="against a published number, not a variant")
    parser.add_argument("--rules", default="house", metavar="NAME", help="house (default), strict, frontier")
    parser.add_argument(
        "--bytes-per-token", type=float, default=SP1024_BYTES_PER_TOKEN, help="turns a rule's nats into bits per byte"
    )
    parser.add_argument("--format", choices=FORMATS, default="text")
    return parser


if __name__ == "__main__":
    sys.exit(main())
