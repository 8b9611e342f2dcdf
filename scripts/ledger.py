"""Everything that was tried, with intervals and verdicts; negative results stay.

    python scripts/ledger.py                                    # all finished variants against their references
    python scripts/ledger.py --catalogue negative_results.csv   # published negative results, our verdicts beside them

A catalogue has the columns category, technique, base, delta_bpb, measured, evidence, source.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from golf.errors import GolfError
from golf.report.ledger import beside_catalogue, ledger
from golf.report.table import FORMATS, render
from golf.report.variants import SCORES
from golf.run.folder import runs_root
from golf.settings.composition import rules_named


def main(arguments: list[str] | None = None) -> int:
    args = _parser().parse_args(arguments)
    try:
        table = ledger(rules_named(args.rules), score=args.score, sigma=args.sigma)
        if args.catalogue:
            table = beside_catalogue(args.catalogue, table)
        if not table.rows:
            raise GolfError(f"Nothing has finished under {runs_root()} yet: GOLF_RUNS names another folder of runs.")
    except GolfError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(render(table, args.format), end="")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--catalogue", type=Path, metavar="FILE", help="a CSV file of published results to list beside")
    parser.add_argument("--rules", default="house", metavar="NAME", help="house (default), strict, frontier")
    parser.add_argument("--sigma", type=float, metavar="BPB", help="standard deviation for what has too few seeds")
    parser.add_argument("--score", choices=list(SCORES), help="which score is compared (default: the one that counts)")
    parser.add_argument("--format", choices=FORMATS, default="text")
    return parser


if __name__ == "__main__":
    sys.exit(main())
