"""The table of a sweep or of any runs, from their files alone, finished or not, and a page with plots.

python scripts/report.py lr                                # a sweep by name, or folders of runs
python scripts/report.py lr --rules strict --sigma 0.0007  # another rule; a borrowed standard deviation, in bpb
python scripts/report.py lr --html lr.html                 # one file that a browser shows without a network
python scripts/report.py lr --plots plots/                 # the page's plots as pictures, for documents
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from golf.errors import GolfError
from golf.files import write_atomic
from golf.report.findings import judged
from golf.report.results import results_table
from golf.report.study import read_study
from golf.report.table import FORMATS, render
from golf.report.variants import SCORES
from golf.report.verdicts import TESTS
from golf.settings.composition import rules_named


def main(arguments: list[str] | None = None) -> int:
    args = _parser().parse_args(arguments)
    try:
        study = read_study(args.what, args.reference)
        findings = judged(
            study, rules_named(args.rules), score=args.score, sigma=args.sigma, against=args.against, test=args.test
        )
        if args.html:
            from golf.report.page import page  # brings matplotlib

            write_atomic(args.html, page(findings))
        if args.plots:
            from golf.report.plots import pictures

            for name, _, png in pictures(findings):
                write_atomic(args.plots / f"{name}.png", png)
    except GolfError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(render(results_table(findings), args.format), end="")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="+", help="a sweep's name, or a folder: a sweep, a variant, a run, many of them")
    parser.add_argument("--reference", metavar="VARIANT", help="compare with this one, by label, value, name or id")
    parser.add_argument("--against", type=float, metavar="BPB", help="compare with this published score instead")
    parser.add_argument("--rules", default="house", metavar="NAME", help="house (default), strict, frontier")
    parser.add_argument("--sigma", type=float, metavar="BPB", help="standard deviation for what has too few seeds")
    parser.add_argument("--score", choices=list(SCORES), help="which score is compared (default: the one that counts)")
    parser.add_argument("--test", choices=TESTS, default="auto", help="paired needs the same checkpoints in both")
    parser.add_argument("--format", choices=FORMATS, default="text")
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write a page with plots")
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="also write its plots as PNG files")
    return parser


if __name__ == "__main__":
    sys.exit(main())
