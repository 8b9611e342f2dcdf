"""Download the challenge's tokenized FineWeb.

    golf data get --variant sp1024 --train-shards 80
    golf data get --variant sp8192 --repo kevclark/parameter-golf

The same command after an interruption fetches the files that are not complete. The sizes of all files are checked.
"""

from __future__ import annotations

from golf.challenge import DATA_REPOSITORY
from golf.commands.parsing import CommandParser
from golf.paths import ROOT

CONFIGURED = {"sp8192_lossless_caps_caseops_v1_reserved": "sp8192_caseops"}  # variants that conf/data names shorter


def main(arguments: list[str]) -> int:
    """Download what is missing and print the folder."""
    made = CommandParser("data get", __doc__, repo={"default": DATA_REPOSITORY}, root={"default": ROOT / "data"})
    args = made.parse_intermixed_args(arguments)
    if args.train_shards < 0:
        made.error("--train-shards has to be 0 or more")
    from golf.lab.corpora.hub import Repository, fetch_variant

    folder = fetch_variant(args.variant, args.train_shards, args.root, print, Repository(args.repo, args.prefix))
    print(f"complete in {folder}: train on it with data=fineweb_{CONFIGURED.get(args.variant, args.variant)}")
    return 0
