"""The exception for mistakes that a user can correct."""


class GolfError(Exception):
    """A mistake that a user can correct. Its text is a sentence that says what to do.

    Commands print it without a traceback and exit with a status other than 0.
    """
