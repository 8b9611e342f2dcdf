"""The exception for mistakes that a user can correct."""

import sys


class GolfError(Exception):
    """A mistake that a user can correct. Its text is a sentence that says what to do.

    Commands print it without a traceback and exit with a status other than 0.
    """


class MissingError(GolfError):
    """A package or an idea is not here that a file was made with. The file itself may be sound."""


class RestrictionError(GolfError):
    """Settings that are sound one by one and that Golf does not have together."""


def without_environment(error: ModuleNotFoundError) -> str:
    """Return the sentence about a package that golf needs and this Python lacks."""
    return (
        f"The package {error.name} is not installed for {sys.executable}: `make run` sets up everything in .venv and "
        "starts a run; afterwards `. .venv/bin/activate` makes this shell use it. In a .venv that is there already, "
        "`pip install -e .` brings what it lacks."
    )
