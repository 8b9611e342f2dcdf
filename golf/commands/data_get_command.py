"""Download the challenge's tokenized FineWeb.

    golf data get --variant sp1024 --train-shards 80
    golf data get --variant sp8192 --repo kevclark/parameter-golf

An interrupted download continues where it stopped, and the sizes of all files are checked.
"""

from __future__ import annotations

from pathlib import Path

from golf.challenge import DATA_REPOSITORY
from golf.commands.parsing import CommandParser
from golf.paths import ROOT

CONFIGURED = {"sp8192_lossless_caps_caseops_v1_reserved": "sp8192_caseops"}  # variants that conf/data names shorter


def parser() -> CommandParser:
    """Return the parser of `golf data get`."""
    made = CommandParser("data get", __doc__)
    made.add_argument("--variant", default="sp1024", help="tokenizer: sp1024, sp4096, … (default: sp1024)")
    shards = "training shards, of 100 million tokens and 200 MB each (default: 80)"
    made.add_argument("--train-shards", type=int, default=80, metavar="N", help=shards)
    repo = f"repository of the Hugging Face hub that has the variant (default: {DATA_REPOSITORY})"
    made.add_argument("--repo", default=DATA_REPOSITORY, metavar="OWNER/NAME", help=repo)
    prefix = "folder of the repository that holds manifest.json (default: datasets)"
    made.add_argument("--prefix", default="datasets", metavar="FOLDER", help=prefix)
    made.add_argument("--root", type=Path, default=ROOT / "data", help="folder to fill (default: data/)")
    return made


def main(arguments: list[str]) -> int:
    """Download what is missing and print the folder."""
    made = parser()
    args = made.parse_intermixed_args(arguments)
    if args.train_shards < 0:
        made.error("--train-shards has to be 0 or more")
    from golf.training.data.hub import Repository, fetch_variant

    folder = fetch_variant(args.variant, args.train_shards, args.root, print, Repository(args.repo, args.prefix))
    print(f"complete in {folder}: train on it with data=fineweb_{CONFIGURED.get(args.variant, args.variant)}")
    return 0
