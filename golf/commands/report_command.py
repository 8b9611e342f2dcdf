"""Print the table of a sweep or of any runs, with verdicts.

The table comes from the files of the runs alone, so runs may still be unfinished.

    golf report lr                                # a sweep by name, or folders of runs
    golf report lr --rules strict --sigma 0.0007  # another rule; a borrowed standard deviation in bits per byte
    golf report lr --html lr.html                 # one file that a browser shows without a network
"""

from __future__ import annotations

from golf.commands.parsing import CommandParser


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
    return 0
