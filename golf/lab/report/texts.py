"""The text that scores are of, and what its number of bytes proves. Scores on two texts never compare."""

from __future__ import annotations

from golf.challenge import OLDER_SPLIT_BYTES, VALIDATION_BYTES

FINEWEB, OLDER_FINEWEB = "FineWeb validation, 151.08 MB", "FineWeb validation, older export, 155.77 MB"
OTHER_TEXT, UNKNOWN_TEXT = "other", "unknown"
OWN_TEXT = "own"
PUBLISHED_ON = {"fineweb": FINEWEB, "older": OLDER_FINEWEB, OWN_TEXT: OWN_TEXT}  # choices of `golf report --text`
OLDER_SCORES = {1.2244: 1.2271}  # the public baseline on the older export, and on today's split; bits per byte
BYTES_TOLERANCE = 0.0004  # relative error of the bytes that loss, bits per byte and tokens imply


def text_of_bytes(text_bytes: float, slack: float = BYTES_TOLERANCE) -> str:
    """Return the name of the validation split that has so many UTF-8 bytes, `OTHER_TEXT` if none has."""
    # The two exports differ by 3 %, far more than the slack.
    splits = ((FINEWEB, VALIDATION_BYTES), (OLDER_FINEWEB, OLDER_SPLIT_BYTES))
    return next((name for name, known in splits if abs(text_bytes / known - 1) <= slack), OTHER_TEXT)


def own_text(text_bytes: float | None, fingerprint: str | None, digest: str | None = None) -> str | None:
    """Return the text of a run's score: the split that its count of bytes proves, else the text with this digest.

    Without either it is the data's fingerprint, which is of tokens and training shards, too. None if nothing tells.
    """
    name = text_of_bytes(text_bytes) if text_bytes else OTHER_TEXT
    if name != OTHER_TEXT:
        return name
    return f"text {digest} of {text_bytes:,.0f} bytes" if digest and text_bytes else fingerprint or None


def imported_text(scored_text: str, tokens: float | None, submission: str) -> str | None:
    """Return the text of an imported run as rows name it, None if nothing tells it.

    Runs of one submission that scored as many tokens are taken to share a text that is neither export of the split.
    """
    if scored_text == UNKNOWN_TEXT:
        return None
    return f"another text of {tokens or 0:,.0f} tokens ({submission})" if scored_text == OTHER_TEXT else scored_text


def shown_text(text: str | None) -> str:
    """Return a text in words: its name, or the fingerprint of the data that it is in."""
    if text is None:
        return "a text that is not known"
    return text if " " in text else f"the text of the data {text}"
