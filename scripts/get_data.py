"""Fetch the challenge's tokenized data: `python scripts/get_data.py --variant sp1024 --train-shards 80`."""

import argparse
import sys
from pathlib import Path

from golf.errors import GolfError
from golf.paths import ROOT
from golf.training.data.hub import fetch_variant


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variant", default="sp1024", help="tokenizer family: sp1024, sp4096, … (default: sp1024)")
    parser.add_argument("--train-shards", type=int, default=80, help="shards of 100 M tokens (default: 80)")
    parser.add_argument("--root", type=Path, default=ROOT / "data", help="where to put it (default: data/)")
    arguments = parser.parse_args()
    if arguments.train_shards < 0:
        parser.error("--train-shards has to be 0 or more")
    try:
        folder = fetch_variant(arguments.variant, arguments.train_shards, arguments.root, print)
    except GolfError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"complete in {folder}: train on it with data=fineweb_{arguments.variant}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
