"""Tokenize your own documents as training data.

    golf data tokenize docs.jsonl --name mine

The command prints the overrides that train on the result.
"""

from __future__ import annotations

import dataclasses
import shlex
import sys

from golf.commands.parsing import CommandParser
from golf.paths import ROOT
from golf.settings.quoting import quoted
from golf.words import counted


def main(arguments: list[str]) -> int:
    """Make the data set and print the command that trains on it."""
    made = CommandParser("data tokenize", __doc__, root={"default": ROOT / "data"})
    args = made.parse_intermixed_args(arguments)
    if args.val_every < 2:
        made.error("--val-every has to be 2 or more")
    if args.val_docs is not None and args.val_docs < 1:
        made.error("--val-docs has to be 1 or more")
    from golf.lab.corpora.own_text import Recipe, make_dataset

    # The arguments are called as the recipe's fields are.
    recipe = Recipe(**{field.name: getattr(args, field.name) for field in dataclasses.fields(Recipe)})
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
    settings = {"data": "own", "data.name": args.name, **dataset.settings()}
    settings |= {"data.byte_sidecar": "true"} if args.caseops else {}
    print(shlex.join(["python", "golf/train.py", *(f"{key}={quoted(value)}" for key, value in settings.items())]))
    return 0
