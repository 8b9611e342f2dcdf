"""Tokenize your own documents as training data.

    golf data tokenize docs.jsonl --name mine

The command prints the overrides that train on the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from golf.commands.parsing import CommandParser
from golf.paths import ROOT


def parser() -> CommandParser:
    """Return the parser of `golf data tokenize`."""
    made = CommandParser("data tokenize", __doc__)
    made.add_argument("sources", nargs="+", type=Path, help=".jsonl files, text files, or folders of them")
    made.add_argument("--name", required=True, help="name of the data set")
    made.add_argument("--vocab-size", type=int, default=1024, help="pieces of the tokenizer (default: 1024)")
    tokenizer = "SentencePiece model to use instead of training a tokenizer"
    made.add_argument("--tokenizer", type=Path, metavar="FILE", help=tokenizer)
    made.add_argument("--text-key", default="text", help="field of a .jsonl line that holds the text (default: text)")
    val_every = "put every N-th document into the validation split (default: 20)"
    made.add_argument("--val-every", type=int, default=20, metavar="N", help=val_every)
    made.add_argument("--root", type=Path, default=ROOT / "data", help="folder to fill (default: data/)")
    return made


def main(arguments: Sequence[str]) -> int:
    """Make the data set and print the command that trains on it."""
    made = parser()
    args = made.parse_intermixed_args(arguments)
    if args.val_every < 2:
        made.error("--val-every has to be 2 or more")
    from golf.training.data.own_text import make_dataset

    dataset = make_dataset(
        args.sources,
        name=args.name,
        root=args.root,
        vocab_size=args.vocab_size,
        tokenizer_path=args.tokenizer,
        val_every=args.val_every,
        text_key=args.text_key,
    )
    tokens = f"{dataset.train_tokens:,} training and {dataset.val_tokens:,} validation tokens"
    print(f"{dataset.documents} documents, {tokens}")
    print(
        f"python golf/train.py data=own data.name={args.name} data.path={dataset.folder} "
        f"data.tokenizer_path={dataset.tokenizer_path} data.vocab_size={dataset.vocab_size}"
    )
    return 0
