"""Write a new idea: its module, values, test and page.

    golf idea new technique my_idea                   # ideas/my_idea in this checkout
    golf idea new mixer my_mixer --folder ~/my-ideas  # anywhere else; GOLF_IDEAS=~/my-ideas makes golf look there

The files pass `golf idea check` as they are. Kinds: technique (an edit of the model), mixer (in place of attention),
optimizer (what becomes of the gradients of matrices), loss (what training minimises and no score sees), order (of the
training text), format (what numbers are stored as), predictor (mixed into the scores). All are techniques, selected by
tech=[NAME].
"""

from __future__ import annotations

import keyword
import re
import shutil
from importlib.util import find_spec
from pathlib import Path

from golf.commands.parsing import CommandParser
from golf.errors import GolfError
from golf.idea_folders import FOLDER, OWN, VARIABLE, ideas

RESERVED = {"none", "all", *keyword.kwlist}
TEMPLATES = Path(__file__).parent / "idea_templates"


def main(arguments: list[str]) -> int:
    """Write the files and say what to do next."""
    args = CommandParser("idea new", __doc__, folder={"default": FOLDER}).parse_intermixed_args(arguments)
    if not re.fullmatch(r"[a-z][a-z0-9_]*", args.name) or args.name in RESERVED or find_spec(args.name):
        how = "use small letters, digits and underscores, and no word or package of Python"
        raise GolfError(f"{args.name} is no name of an idea: {how}.")
    if args.name in ideas() or args.name in {path.stem for path in OWN.glob("*.py")}:
        raise GolfError(f"There is a technique {args.name} already: choose another name.")
    if (folder := args.folder.expanduser() / args.name).exists():
        raise GolfError(f"{folder} exists already: choose another name.")
    write_idea(args.kind, args.name, folder)
    print(f"{folder}: edit {args.name}.py, then\n  golf idea check {folder}")
    print(f"{folder / 'README.md'} has the command that trains with it")
    return 0


def write_idea(kind: str, name: str, folder: Path) -> None:
    """Write the files of a new idea into `folder`. It leaves no folder behind where it fails."""
    words = {
        "NAME": name,
        "CLASS": "".join(part.capitalize() for part in name.split("_")),
        # Golf looks into the folder of this checkout by itself.
        "WHERE": "" if folder.parent == FOLDER else f"{VARIABLE}={folder.parent} ",
    }
    folder.mkdir(parents=True)
    try:
        for template in sorted((TEMPLATES / kind).iterdir()):
            text = re.sub("NAME|CLASS|WHERE", lambda match: words[match[0]], template.read_text(encoding="utf-8"))
            (folder / template.name.replace("NAME", name).removesuffix(".txt")).write_text(text, encoding="utf-8")
    except OSError:
        shutil.rmtree(folder)
        raise
