"""List every setting with its meaning, default and choices.

    golf help settings              # all, by group
    golf help settings optim        # those of a group, or with a word in their key or meaning
    golf help settings weight decay # with both words
    golf help settings optim --json # for programs

A default is the schema's, which is that of the public baseline. A scale or an option of a group may set another:
golf train --cfg job prints the values of a run.
"""

from __future__ import annotations

from golf.commands.parsing import CommandParser
from golf.errors import GolfError
from golf.words import answer


def main(arguments: list[str]) -> int:
    """Print the settings that were asked for."""
    args = CommandParser("help settings", __doc__).parse_intermixed_args(arguments)
    from golf.lab.report.settings_catalogue import found

    words = " ".join(args.words)
    # The name of a group is meant as the group, even if keys of other groups contain the word.
    if not (groups := [group for group in found("") if group.name == words] or found(words)):
        raise GolfError(f"No setting has {words} in its key or meaning: golf help settings lists all.")
    if args.json:
        print(answer({"settings": [setting for group in groups for setting in group.settings]}))
        return 0
    for group in groups:
        print(f"\n{group.name or 'the run itself'}: {group.about}")
        for setting in group.settings:
            print(f"  {setting.key}={setting.default}" + (f"  ({setting.allowed})" if setting.allowed else ""))
            if setting.meaning:
                print(f"      {setting.meaning}")
    return 0
