"""A record folder out of the seeds of one variant, with one self-contained train_gpt.py, checked by running it.

python scripts/export_submission.py multirun/gold6_11l-3866b0dc --author "A. Golfer" --github-id agolfer
python scripts/export_submission.py RUN RUN RUN --wrap --reference 1.2244 --rules strict
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from golf.challenge import SEEDS_WANTED
from golf.errors import GolfError
from golf.foreign.reference import reference_of
from golf.settings.composition import rules_named
from golf.submission.export import Order, export
from golf.submission.manifest import Label
from golf.submission.readme import in_a_sentence
from golf.submission.runs import gather, track_of


def main(arguments: list[str] | None = None) -> int:
    args = _parser().parse_args(arguments)
    try:
        runs = gather(args.runs)
        track = args.track or track_of(runs)
        name = args.name or runs[0].result.name
        blurb = args.blurb or runs[0].cfg.note or in_a_sentence(runs[0].cfg)
        label = Label(args.author, args.github_id, name, blurb, track)
        wanted = SEEDS_WANTED[track] if args.seeds is None else args.seeds
        reference = reference_of(args.reference) if args.reference else None
        order = Order(label, rules_named(args.rules), wanted, reference, args.wrap)
        target = args.out or Path("submissions") / f"{name}-{runs[0].result.variant_id}"
        export(runs, order, target)
    except GolfError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{target}: {len(runs)} seeds, track {track}; audit it with python scripts/audit_submission.py {target}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="folder of a run, or of all seeds of a variant"
    )
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="default: submissions/<name>-<variant>")
    parser.add_argument("--author", required=True)
    parser.add_argument("--github-id", required=True)
    parser.add_argument("--name", help="title (default: the variant's name)")
    parser.add_argument(
        "--blurb", help="what was done, in a sentence or two (default: the runs' note, or what they ran)"
    )
    parser.add_argument("--track", choices=list(SEEDS_WANTED), help="default: told from budget and hardware")
    parser.add_argument("--wrap", action="store_true", help="minified and compressed, for fewer bytes of code")
    parser.add_argument("--reference", metavar="BPB|FOLDER", help="a published score or runs, to be better than")
    parser.add_argument("--rules", default="strict", metavar="NAME", help="strict (default), house, frontier")
    parser.add_argument("--seeds", type=int, metavar="N", help="seeds wanted (default: 3 on the record track, else 1)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
