"""The one exception for what a user can mend: its text is a sentence that says what to do."""


class GolfError(Exception):
    """Shown without a traceback; the process exits with a status that is not 0."""
