"""Make a submission from the seeds of one variant.

The result is a record folder with one self-contained train_gpt.py, which is checked by running it.

    golf export multirun/4l-int8-2d8362ef --author "A. Golfer" --github-id agolfer
    golf export RUN RUN RUN --wrap --reference 1.2271 --rules strict
    golf export --read RUN > run.py       # the script alone, to read a whole run from top to bottom
"""

from __future__ import annotations

from pathlib import Path

from golf.challenge import SEEDS_WANTED
from golf.commands.parsing import CommandParser
from golf.errors import GolfError
from golf.words import counted


def main(arguments: list[str]) -> int:
    """Export the runs and print the folder."""
    args = CommandParser("export", __doc__).parse_intermixed_args(arguments)
    if args.read:
        from golf.submission.runs import gather
        from golf.submission.script.bundle import Bundle

        print(Bundle(gather(args.runs)[0].cfg).readable, end="")
        return 0
    if not (args.author and args.github_id):
        raise GolfError("A submission names its author: add --author and --github-id.")
    from golf.field.folder_audit import audit
    from golf.field.reference import reference_of
    from golf.lab.report.comparison import check_published_text
    from golf.settings.composition import rules_named
    from golf.submission.manifest import Label
    from golf.submission.readme import in_a_sentence
    from golf.submission.record_folder import Order, export
    from golf.submission.runs import as_variant, gather, track_of

    runs = gather(args.runs)
    track = args.track or track_of(runs)
    name = args.name or runs[0].result.name
    blurb = args.blurb or runs[0].cfg.note or in_a_sentence(runs[0].cfg)
    label = Label(args.author, args.github_id, name, blurb, track)
    wanted = SEEDS_WANTED[track] if args.seeds is None else args.seeds
    reference = reference_of(args.reference) if args.reference else None
    if isinstance(reference, float):
        check_published_text([as_variant(runs)], reference, args.text)
    order = Order(label, rules_named(args.rules), wanted, reference, args.wrap)
    target = args.out or Path("submissions") / f"{name}-{runs[0].result.variant_id}"
    export(runs, order, target)
    print(f"{target}: {counted(len(runs), 'seed')}, track {track}")
    for fault in audit(target, reference, order.rules).faults:
        print(f"warning: golf audit faults it: {fault}")
    return 0
