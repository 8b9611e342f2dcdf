"""Bundles of overrides as the variants of a sweep: `golf train -m S --variant "a=1 b=2" --variant "c=3"`."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence

from golf.errors import GolfError

SETTING = "hydra.sweeper.variants"  # by which they reach the sweeper
FLAG = "--variant"
CROSSING = re.compile(r"\+*sweep=interaction")


def bundles_given(arguments: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Return the arguments without the flag, and the overrides of each bundle; an empty one is the command as it is.

    With `+sweep=interaction` these are neither, each and both of two bundles.
    """
    rest: list[str] = []
    bundles: list[list[str]] = []
    words = list(arguments)
    while words:
        word = words.pop(0)
        if word == FLAG and not words:
            raise GolfError(
                f'{FLAG} is followed by overrides in quotes, as in {FLAG} "optim.beta2=0.99 quant=int6_mixed".'
            )
        if word == FLAG or word.startswith(f"{FLAG}="):
            bundles.append(bundle(words.pop(0) if word == FLAG else word.partition("=")[2]))
            if any(key_of(override) == "seed" for override in bundles[-1]):
                raise GolfError(f"A seed makes no variant: give seeds beside {FLAG}, such as seed=1,2,3.")
        else:
            rest.append(word)
    if bundles and (crossing := [word for word in rest if CROSSING.fullmatch(word)]):
        rest, bundles = [word for word in rest if word not in crossing], crossed(bundles)
    return rest, bundles


def crossed(bundles: Sequence[list[str]]) -> list[list[str]]:
    """Return neither, each and both of two bundles. Raises `GolfError` if there are not two, or one undoes the other.

    Both have the techniques of both.
    """
    if len(bundles) != 2:
        raise GolfError(f"+sweep=interaction takes two changes, each a {FLAG}, and not {len(bundles)}.")
    one, other = ({key_of(override): override for override in side} for side in bundles)
    if alike := sorted((one.keys() & other.keys()) - {"tech"}):
        raise GolfError(f"Both changes set {alike[0]}, so they cannot be made together.")
    both = {**one, **other}
    if "tech" in one and "tech" in other:
        names = [name for side in (one, other) for name in names_in(side["tech"].partition("=")[2])]
        both["tech"] = f"tech=[{','.join(dict.fromkeys(names))}]"
    return [[], *bundles, list(both.values())]


def names_in(value: str) -> list[str]:
    """Return the names in a list on the command line, such as `[xsa,ema]`."""
    return [name for part in value.strip("[]").split(",") if (name := part.strip("'\" "))]


def bundle(text: str) -> list[str]:
    """Return the overrides that `text` lists as a shell reads them. Raises `GolfError` for what is none."""
    try:
        overrides = shlex.split(text)
    except ValueError as error:
        raise GolfError(f"The overrides {text} cannot be read: {error}.") from error
    for override in overrides:
        if override.startswith("-") or not re.match(r"~|[^=]+=", override):
            raise GolfError(f"{override} is no override: write settings as key=value, such as optim.beta2=0.99.")
    return overrides


def as_setting(bundles: Sequence[Sequence[str]]) -> str:
    """Return the override that hands bundles to the sweeper."""
    return f"{SETTING}=[{','.join(json.dumps(shlex.join(one), ensure_ascii=False) for one in bundles)}]"


def on_top(overrides: Sequence[str], bundle: Sequence[str]) -> list[str]:
    """Return `overrides` with those of a bundle; a setting of both has the bundle's value."""
    keys = {key_of(override) for override in bundle}
    return [*(override for override in overrides if key_of(override) not in keys), *bundle]


def key_of(override: str) -> str:
    """Return the setting or group that an override names."""
    return override.lstrip("+~").partition("=")[0]
