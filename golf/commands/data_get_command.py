"""Download the challenge's tokenized FineWeb.

    golf data get --variant sp1024 --train-shards 80

An interrupted download continues where it stopped, and the sizes of all files are checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from golf.commands.parsing import CommandParser
from golf.paths import ROOT


def parser() -> CommandParser:
    """Return the parser of `golf data get`."""
    made = CommandParser("data get", __doc__)
    made.add_argument("--variant", default="sp1024", help="tokenizer: sp1024, sp4096, … (default: sp1024)")
    shards = "training shards, of 100 million tokens and 200 MB each (default: 80)"
    made.add_argument("--train-shards", type=int, default=80, metavar="N", help=shards)
    made.add_argument("--root", type=Path, default=ROOT / "data", help="folder to fill (default: data/)")
    return made


def main(arguments: Sequence[str]) -> int:
    """Download what is missing and print the folder."""
    made = parser()
    args = made.parse_intermixed_args(arguments)
    if args.train_shards < 0:
        made.error("--train-shards has to be 0 or more")
    from golf.training.data.hub import fetch_variant

    folder = fetch_variant(args.variant, args.train_shards, args.root, print)
    print(f"complete in {folder}: train on it with data=fineweb_{args.variant}")
    return 0
