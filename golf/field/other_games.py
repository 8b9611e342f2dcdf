"""Logs of related games, which are called by their names and never compared: other text, other size, other clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from golf.field.log_reader import LogRun

OTHER_GAME = "other game"  # state of such a run
# What no log of this game has in a line.
_MARKS = {"| mfu:": "nanochat", "total_tokens_M:": "autoresearch"}


def marked_game(text: str) -> str:
    """Return the game that a line of a log belongs to, empty if it tells nothing."""
    return next((game for mark, game in _MARKS.items() if mark in text), "")


def other_game(run: LogRun) -> str:
    """Return the name of the other game that a run is of; empty for one of this game.

    A fork of autoresearch that plays this game prints the bytes of an artifact, and a run of modded-nanogpt has losses
    and no bits per byte in any of its validations.
    """
    if run.sizes:
        return ""
    if run.game:
        return run.game
    validations = [line for line in run.curve if line.val_loss is not None]
    in_bits = any(line.val_bpb is not None for line in run.curve) or run.scores or run.printed or run.progress
    return "modded-nanogpt" if validations and not in_bits else ""
