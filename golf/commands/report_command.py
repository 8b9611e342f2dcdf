"""Print the table of a sweep or of any runs, with verdicts.

The table comes from the files of the runs alone, so runs may still be unfinished.

    golf report lr                                # a sweep by name, or folders of runs
    golf report lr --rules strict --sigma 0.0007  # another rule; a borrowed standard deviation in bits per byte
    golf report lr --html lr.html                 # one file that a browser shows without a network
    golf report results.tsv                       # somebody's table of tries: which of its keeps stand
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from golf.commands.parsing import CommandParser
from golf.exits import EXIT_NOT_BETTER, EXIT_UNDECIDED

if TYPE_CHECKING:
    import argparse

    from golf.lab.report.findings import Findings


def main(arguments: list[str]) -> int:
    """Print the report and write the files that were asked for."""
    args = CommandParser("report", __doc__).parse_intermixed_args(arguments)
    from golf.errors import GolfError
    from golf.files import write_atomic
    from golf.lab.report.comparison import check_published_text, published_noise
    from golf.lab.report.findings import judged
    from golf.lab.report.results import results_table
    from golf.lab.report.store import sweep_names
    from golf.lab.report.study import read_study
    from golf.lab.report.table import render
    from golf.run.folder import runs_root
    from golf.settings.composition import rules_named

    if not args.what:
        known = ", ".join(sweep_names(runs_root())) or "none yet"
        raise GolfError(f"Say what to report: a sweep ({known}) or a folder.")
    if len(args.what) == 1 and _is_loop_table(args.what[0]):
        return _report_loop(args)
    if args.column:
        raise GolfError("--column names a column of a table of tries (.tsv, .csv): name such a file.")
    if args.reference and args.against is not None:
        raise GolfError("--reference and --against both name what to compare with: give one of them.")
    study, rules = read_study(args.what, args.reference), rules_named(args.rules)
    if args.against is not None:
        check_published_text(study.variants, args.against, args.text)
    noise = published_noise(args.against, args.against_n, args.against_sigma)
    findings = judged(study, rules, score=args.score, sigma=args.sigma, against=args.against, published=noise)
    if args.html:
        from golf.lab.report.board_file import single_file

        write_atomic(args.html, single_file(findings))
    print(render(results_table(findings), args.format), end="")
    return _decision(findings) if args.exit else 0


def _is_loop_table(what: str) -> bool:
    # As `golf.field.loop_table.is_table`, which may not be here: other reports do without golf/field.
    path = Path(what)
    return path.suffix.lower() in (".tsv", ".csv") and path.is_file()


def _report_loop(args: argparse.Namespace) -> int:
    """Print which keeps of a table of tries stand. Raises `GolfError` for options of other reports."""
    from golf.errors import GolfError
    from golf.field.loop_table import read_table
    from golf.field.loop_verdicts import keeps_table, some_stand
    from golf.lab.report.table import render

    given = {"--reference": args.reference, "--against": args.against, "--html": args.html, "--score": args.score}
    if other := [name for name, value in given.items() if value not in (None, "")]:
        takes = "--sigma, --column, --format, --json and --exit"
        raise GolfError(f"{other[0]} is for runs of Golf: a table of tries takes {takes}.")
    table = keeps_table(read_table(Path(args.what[0]), args.column or ""), args.sigma)
    print(render(table, args.format), end="")
    return some_stand(table) if args.exit else 0


def _decision(findings: Findings) -> int:
    """Return the exit status that says what was found: something better, something undecided, or neither."""
    from golf.lab.report.verdicts import BETTER, MARGIN_NOT_SHOWN, NO_DIFFERENCE, NO_VERDICT

    kinds = {verdict.kind for verdict in findings.verdicts.values()}
    open_kinds = {NO_VERDICT, NO_DIFFERENCE, MARGIN_NOT_SHOWN}
    if BETTER in kinds:
        return 0
    return EXIT_UNDECIDED if kinds & open_kinds or not kinds else EXIT_NOT_BETTER
