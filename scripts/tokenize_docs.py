"""Turn your own documents into training data: `python scripts/tokenize_docs.py docs.jsonl --name mine`."""

import argparse
import sys
from pathlib import Path

from golf.errors import GolfError
from golf.paths import ROOT
from golf.training.data.own_text import make_dataset


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sources", nargs="+", type=Path, help=".jsonl files, text files, or folders of them")
    parser.add_argument("--name", required=True, help="name of the data set")
    parser.add_argument("--vocab-size", type=int, default=1024, help="pieces of the tokenizer (default: 1024)")
    parser.add_argument("--tokenizer", type=Path, help="use this SentencePiece model instead of training one")
    parser.add_argument("--text-key", default="text", help="field of a .jsonl line that holds the text")
    parser.add_argument("--val-every", type=int, default=20, help="every n-th document is validation (default: 20)")
    parser.add_argument("--root", type=Path, default=ROOT / "data", help="where to put it (default: data/)")
    a = parser.parse_args()
    if a.val_every < 2:
        parser.error("--val-every has to be 2 or more")
    try:
        made = make_dataset(
            a.sources,
            name=a.name,
            root=a.root,
            vocab_size=a.vocab_size,
            tokenizer_path=a.tokenizer,
            val_every=a.val_every,
            text_key=a.text_key,
        )
    except GolfError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{made.documents} documents, {made.train_tokens:,} training and {made.val_tokens:,} validation tokens")
    print(
        f"python golf/train.py data=own data.name={a.name} data.path={made.folder} "
        f"data.tokenizer_path={made.tokenizer_path} data.vocab_size={made.vocab_size}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
