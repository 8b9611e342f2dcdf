"""CaseOps: text whose ASCII capitals are written as operators in front of lower-case letters, and back again.

The transform is that of the public data set `lossless_caps_caseops_v1` (openai/parameter-golf PR #1729). Four
private-use characters are operators: TITLE and ALLCAPS stand before a word, CAPNEXT before a single capital within
one, and ESCAPE before an operator that the text itself holds. A word is a run of ASCII letters. Every text has one
encoding, and no encoding holds an ASCII capital.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import sentencepiece

from golf.errors import GolfError
from golf.training.data.byte_tables import SPACE

OPERATORS = "\ue001\ue002\ue003\ue004"
TITLE, ALLCAPS, CAPNEXT, ESCAPE = list(OPERATORS)
# Pieces of a space with the operator behind it (PR #2109).
FUSED = [SPACE + operator for operator in (TITLE, ALLCAPS, CAPNEXT)]
_TO_ENCODE = re.compile(f"[{OPERATORS}]|[A-Za-z]+")
# An escaped operator, a word with its operators, or anything else, in the order in which they are tried.
_TO_DECODE = re.compile(
    f"{ESCAPE}(?P<escaped>[{OPERATORS}])"
    f"|(?P<mode>[{TITLE}{ALLCAPS}]?)(?P<word>(?:(?<![{TITLE}{ALLCAPS}]){CAPNEXT})?[a-z](?:{CAPNEXT}?[a-z])*)"
    f"|[^{OPERATORS}A-Za-z]+"
)


def encode_capitals(text: str) -> str:
    """Return `text` with operators in place of capitals. `decode_capitals` gives the text back."""
    return _TO_ENCODE.sub(_encoded, text)


def _encoded(match: re.Match[str]) -> str:
    word = match[0]
    if word in OPERATORS:
        return ESCAPE + word
    if word.islower():
        return word
    # A single capital gets TITLE, so that there is one way to write it.
    if len(word) > 1 and word.isupper():
        return ALLCAPS + word.lower()
    first = TITLE + word[0].lower() if word[0].isupper() else word[0]
    return first + re.sub("[A-Z]", lambda capital: CAPNEXT + capital[0].lower(), word[1:])


def decode_capitals(encoded: str) -> str:
    """Return the text that `encoded` stands for. Raises `GolfError` for what `encode_capitals` cannot have written."""
    parts: list[str] = []
    place, after_word = 0, False
    while place < len(encoded):
        match = _TO_DECODE.match(encoded, place)
        is_word = match is not None and match["word"] is not None
        # An operator for a word cannot stand inside one, which shows as a word right behind another.
        if match is None or (is_word and after_word):
            raise GolfError(_malformed(encoded, place))
        parts.append(_decoded(match))
        place, after_word = match.end(), is_word
    return "".join(parts)


def _decoded(match: re.Match[str]) -> str:
    if match["escaped"]:
        return match["escaped"]
    if not match["word"]:
        return match[0]
    word = re.sub(f"{CAPNEXT}(.)", lambda capital: capital[1].upper(), match["word"])
    if match["mode"] == ALLCAPS:
        return word.upper()
    return word[0].upper() + word[1:] if match["mode"] else word


def _malformed(encoded: str, place: int) -> str:
    character = encoded[place]
    if character in OPERATORS:
        what = f"an operator (U+{ord(character):04X}) that no ASCII letter or escaped operator follows as it has to"
    else:
        what = f"'{character}', which CaseOps writes in lower case"
    return f"Character {place} of the text is {what}: this is not CaseOps text, so give the text before encoding."


def count_bytes(surfaces: Iterable[str]) -> list[int]:
    """Return the UTF-8 bytes of the original text that each slice of an encoded text stands for.

    `surfaces` are the slices in their order. Operators stand for no bytes, an escaped operator for its own.
    """
    counts, is_escaped = [], False
    for surface in surfaces:
        count = 0
        for character in surface:
            # An escape can end one slice and its operator begin the next, so the state outlasts a slice.
            if is_escaped or character not in OPERATORS:
                count += len(character.encode())
            is_escaped = character == ESCAPE and not is_escaped
        counts.append(count)
    return counts


def operator_ids(tokenizer: sentencepiece.SentencePieceProcessor) -> dict[str, int]:
    """Return the token ids of the operators by operator; empty for a tokenizer that was not made for CaseOps.

    Raises `GolfError` for one that knows some operators only.
    """
    ids = {operator: tokenizer.piece_to_id(operator) for operator in OPERATORS}
    # SentencePiece gives the unknown token's id for a piece that it does not have.
    known = {operator: i for operator, i in ids.items() if i != tokenizer.unk_id()}
    if known and len(known) < len(OPERATORS):
        raise GolfError(
            f"The tokenizer has pieces for {len(known)} of the {len(OPERATORS)} CaseOps operators (U+E001 to U+E004): "
            "train one with `golf data tokenize --caseops`."
        )
    return known
