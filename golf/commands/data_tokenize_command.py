"""Tokenize your own documents as training data.

    golf data tokenize docs.jsonl --name mine

The command prints the overrides that train on the result.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from golf.commands.parsing import CommandParser
from golf.paths import ROOT
from golf.settings.quoting import quoted
from golf.words import counted


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
    val_docs = "put the first N documents into the validation split instead; the challenge's first 50,000 are its own"
    made.add_argument("--val-docs", type=int, metavar="N", help=val_docs)
    caseops = "write capitals as operators (CaseOps), and the bytes of the validation text into a sidecar"
    made.add_argument("--caseops", action="store_true", help=caseops)
    fused = "with --caseops, make a space and the operator behind it one token (PR #2109)"
    made.add_argument("--fuse-operators", action="store_true", help=fused)
    prefix = "start of the shards' names (default: --name); the public scripts read fineweb"
    made.add_argument("--prefix", default="", help=prefix)
    made.add_argument("--root", type=Path, default=ROOT / "data", help="folder to fill (default: data/)")
    return made


def main(arguments: list[str]) -> int:
    """Make the data set and print the command that trains on it."""
    made = parser()
    args = made.parse_intermixed_args(arguments)
    if args.val_every < 2:
        made.error("--val-every has to be 2 or more")
    if args.val_docs is not None and args.val_docs < 1:
        made.error("--val-docs has to be 1 or more")
    from golf.training.data.own_text import Recipe, make_dataset

    recipe = Recipe(
        name=args.name,
        vocab_size=args.vocab_size,
        tokenizer_path=args.tokenizer,
        caseops=args.caseops,
        fused=args.fuse_operators,
        val_every=args.val_every,
        val_docs=args.val_docs,
        text_key=args.text_key,
        prefix=args.prefix,
    )
    dataset = make_dataset(args.sources, args.root, recipe)
    for sentence in dataset.skipped:
        print(f"warning: {sentence}", file=sys.stderr)
    tokens = f"{dataset.train_tokens:,} training and {dataset.val_tokens:,} validation tokens"
    print(f"{counted(dataset.documents, 'document')}, {tokens}")
    print(f"validation: {counted(dataset.val_documents, 'document')}, whose text no training document has")
    if dataset.repeated:
        print(f"left out of training, because validation has the same text: {counted(dataset.repeated, 'document')}")
    if dataset.empty:
        print(f"left out, because they are empty: {counted(dataset.empty, 'document')}")
    if dataset.escaped:
        escaped = counted(dataset.escaped, "document")
        print(f"hold characters of the CaseOps operators (U+E001 to U+E004), now escaped: {escaped}")
    settings = {"data": "own", "data.name": args.name, "data.path": dataset.folder}
    settings |= {"data.tokenizer_path": dataset.tokenizer_path, "data.vocab_size": dataset.vocab_size}
    settings |= {"data.byte_sidecar": "true"} if args.caseops else {}
    print(shlex.join(["python", "golf/train.py", *(f"{key}={quoted(str(value))}" for key, value in settings.items())]))
    return 0
