"""CaseOps: every text comes back, every byte is counted once, and text that was not encoded is refused."""

import re

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from golf.errors import GolfError
from golf.training.data.caseops import (
    ALLCAPS,
    CAPNEXT,
    ESCAPE,
    FUSED,
    OPERATORS,
    TITLE,
    count_bytes,
    decode_capitals,
    encode_capitals,
)
from golf.training.data.documents import train_tokenizer
from tests.support import make_text, parity

# Words of mixed case and operators next to each other come up often enough in this alphabet.
TEXTS = st.one_of(st.text(), st.text(st.sampled_from([*"aAbBzZ1'é. \n", *OPERATORS])))
SHORT = {"T": TITLE, "A": ALLCAPS, "N": CAPNEXT, "X": ESCAPE}


def spelled(example: str) -> str:
    """`T the` with a blank after each of T, A, N and X, as in the tables below."""
    return re.sub("([TANX]) ?", lambda operator: SHORT[operator[1]], example)


@given(TEXTS)
def test_every_text_comes_back(text: str) -> None:
    encoded = encode_capitals(text)
    assert decode_capitals(encoded) == text
    assert not re.search("[A-Z]", encoded)
    if not any(operator in text for operator in OPERATORS):
        plain = encoded.translate({ord(operator): None for operator in OPERATORS})
        assert plain == re.sub("[A-Z]", lambda capital: capital[0].lower(), text)
        assert len(encoded) - len(plain) <= len(re.findall("[A-Z]", text))


@given(TEXTS)
def test_what_is_decoded_is_an_encoding_or_refused(text: str) -> None:
    """The decoder accepts one thing more: CAPNEXT at a word's start, which decodes as TITLE does."""
    try:
        found = decode_capitals(text)
    except GolfError as error:
        assert "\n" not in str(error).replace(repr(text), "")
        return
    assert decode_capitals(encode_capitals(found)) == found


@pytest.mark.parametrize(
    ("text", "encoded"),
    [
        ("The NASA Launch", "T the A nasa T launch"),
        ("iPhone OpenAI", "i N phone T open N a N i"),
        ("McDonald's", "T mc N donald's"),
        ("HTMLParser", "T h N t N m N l N parser"),
        ("I A", "T i T a"),
        ("I'M", "T i'T m"),
        ("A1B2", "T a1T b2"),
        ("ABc", "T a N bc"),
        ("aB", "a N b"),
        ("ÉCOLE", "ÉA cole"),
        (f"x{CAPNEXT}", f"x{ESCAPE}{CAPNEXT}"),
    ],
)
def test_rules_of_the_public_transform(text: str, encoded: str) -> None:
    assert encode_capitals(text).replace(" ", "") == spelled(encoded).replace(" ", "")


@pytest.mark.parametrize(
    "text", ["T", "A", "N", "X", "T !", "T 1", "T A a", "N N a", "aA b", "aT b", "x N !", "N T a", "T N a", "xX"]
)
def test_malformed_text_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(GolfError, match=r"^Character \d+ of the text is an operator \(U\+E00\d\) that .*encoding\.$"):
        decode_capitals(spelled(text))
    with pytest.raises(GolfError, match="Character 1 of the text is 'Q', which CaseOps writes in lower case"):
        decode_capitals("xQ")


def test_parity_with_the_public_transform() -> None:
    arrays, config = parity("caseops_a")
    tokenizer = sentencepiece.SentencePieceProcessor(model_proto=arrays["tokenizer_model"].tobytes())
    for row in config["rows"]:
        assert encode_capitals(row["text"]) == row["encoded"] and decode_capitals(row["encoded"]) == row["text"]
        pieces = tokenizer.encode(row["encoded"], out_type="proto").pieces
        assert [piece.id for piece in pieces] == row["ids"]
        assert count_bytes(piece.surface for piece in pieces) == row["bytes"]
    for text in config["malformed_must_raise"]:
        with pytest.raises(GolfError):
            decode_capitals(text)


@pytest.fixture(scope="module")
def tokenizer() -> sentencepiece.SentencePieceProcessor:
    texts = [encode_capitals(make_text(20, seed).title()) for seed in range(4)]
    return sentencepiece.SentencePieceProcessor(model_proto=train_tokenizer(texts, 300, with_operators=True))


@given(text=TEXTS.filter(lambda text: not re.search("[\0\ud800-\udfff]", text)))
def test_counted_bytes_are_the_texts(tokenizer: sentencepiece.SentencePieceProcessor, text: str) -> None:
    pieces = tokenizer.encode(encode_capitals(text), out_type="proto").pieces
    counts = count_bytes(piece.surface for piece in pieces)
    assert sum(counts) == len(text.encode())
    assert len(counts) == len(pieces)


@pytest.fixture(scope="module")
def fused() -> sentencepiece.SentencePieceProcessor:
    texts = [encode_capitals(make_text(20, seed).title()) for seed in range(4)]
    model = train_tokenizer(texts, 303, with_operators=True, fused=True)
    return sentencepiece.SentencePieceProcessor(model_proto=model)


@given(text=TEXTS.filter(lambda text: not re.search("[\0\ud800-\udfff\u2581]", text)))
def test_a_space_and_its_operator_are_one_token_and_come_back(
    fused: sentencepiece.SentencePieceProcessor, text: str
) -> None:
    """PR #2109 has them as the ids 8 to 10, with the bytes of the space. An escaped operator is none."""
    encoded = encode_capitals(text)
    pieces = fused.encode(encoded, out_type="proto").pieces
    ids = [piece.id for piece in pieces]
    assert decode_capitals(fused.decode(ids)) == text
    counts = count_bytes(piece.surface for piece in pieces)
    assert sum(counts) == len(text.encode())
    assert [count for i, count in zip(ids, counts, strict=True) if 8 <= i <= 10] == [1] * sum(8 <= i <= 10 for i in ids)
    spaced = re.findall(f" [{OPERATORS[:3]}]", encoded)
    assert [FUSED[i - 8][1] for i in ids if 8 <= i <= 10] == [pair[1] for pair in spaced]


def test_fused_operators_take_fewer_tokens(
    fused: sentencepiece.SentencePieceProcessor, tokenizer: sentencepiece.SentencePieceProcessor
) -> None:
    assert [fused.id_to_piece(i) for i in range(4, 11)] == [*OPERATORS, *FUSED]
    encoded = encode_capitals(make_text(30, 9).title())
    assert len(fused.encode(encoded)) < 0.95 * len(tokenizer.encode(encoded))


def test_operators_are_pieces_of_their_own(tokenizer: sentencepiece.SentencePieceProcessor) -> None:
    pieces = [tokenizer.id_to_piece(i) for i in range(300)]
    assert pieces[4:8] == list(OPERATORS)
    assert not any(set(piece) & set(OPERATORS) for piece in pieces[:4] + pieces[8:])
    assert not any(re.search("[A-Z]", piece) for piece in pieces if not piece.startswith("<"))
