"""The lists of `drop` for ablations of a stack of techniques: leave one out, add one, and two alone and together."""

from __future__ import annotations

from collections.abc import Iterable

from golf.errors import GolfError
from golf.settings.config import Config
from golf.settings.dropping import OFF, is_on

# parallel_muon computes the same updates; sliding and ttt only add scores of the same weights.
NOT_ABLATED = ("parallel_muon", "sliding", "ttt")


def leave_one_out(cfg: Config) -> list[list[str]]:
    """Return the lists of `drop`: the empty one, then each technique or setting of `cfg` with those that need it."""
    return [[], *_unique(sorted(_with_dependents(cfg, name)) for name in separable(cfg))]


def add_one(cfg: Config) -> list[list[str]]:
    """Return the lists of `drop`: everything, then everything except one technique or setting and those it needs."""
    names = separable(cfg)
    kept = [_with_needed(cfg, name) for name in names]
    return [names, *_unique([name for name in names if name not in keep] for keep in kept)]


def interaction(cfg: Config) -> list[list[str]]:
    """Return the lists of `drop` that leave neither of two techniques or settings, each alone, and both."""
    names = separable(cfg)
    if len(names) != 2:
        raise GolfError(
            f"+sweep=interaction takes two changes, and here are {len(names)} ({', '.join(names)}): name two "
            'techniques by tech=[…], or two bundles by --variant "…" --variant "…".'
        )
    lists = _unique(sorted(_with_dependents(cfg, name)) for name in names)
    if len(lists) < 2 or names in lists:
        raise GolfError(f"{names[0]} and {names[1]} do not run alone, so nothing tells whether they add up.")
    return [names, lists[1], lists[0], []]


def separable(cfg: Config) -> list[str]:
    """Return the techniques of `cfg` and the settings of `OFF` that are on here but not in the plain baseline.

    Raises `GolfError` if there are none, or if `cfg.drop` has taken some out already.
    """
    if cfg.drop:
        raise GolfError(
            f"this sweep drops one thing at a time, so drop=[{','.join(cfg.drop)}] has no place in it: "
            "name an experiment or tech=[…] without what you do not want."
        )
    settings = [name for name in OFF if is_on(cfg, name) and not is_on(Config(), name) and name not in NOT_ABLATED]
    if not (names := sorted([*cfg.tech, *settings])):
        raise GolfError("there is nothing to take out one at a time: name one experiment, or techniques by tech=[…].")
    return names


def _with_dependents(cfg: Config, name: str) -> set[str]:
    """Return `name` and every technique of `cfg` that needs it, directly or through others."""
    names = {name}
    while more := {t for t, settings in cfg.tech.items() if names & set(settings.requires)} - names:
        names |= more
    return names


def _with_needed(cfg: Config, name: str) -> set[str]:
    """Return `name` and every technique that it needs, directly or through others."""
    names = {name}
    while more := {need for n in names if n in cfg.tech for need in cfg.tech[n].requires} - names:
        names |= more
    return names


def _unique(lists: Iterable[list[str]]) -> list[list[str]]:
    """Return each list once: techniques that need each other are dropped together, from whichever one starts."""
    return [list(names) for names in dict.fromkeys(map(tuple, lists))]
