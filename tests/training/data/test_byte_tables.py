"""Byte tables: the public numbers, and bytes that add up to the text's."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from golf.errors import GolfError
from golf.lab.corpora.own_text import OwnDataset
from golf.training.data.byte_tables import byte_tables, load_tokenizer
from golf.training.data.documents import BOS_ID, encode_documents, encode_with_bytes, train_tokenizer
from tests.support import PARITY, make_text, parity


def test_parity_with_the_public_tables() -> None:
    arrays, _ = parity("loader_and_bpb_luts")
    tables = byte_tables(load_tokenizer(PARITY / "tiny_dataset" / "tiny_400_bpe.model", 400), 400)
    assert np.array_equal(tables.base_bytes, arrays["base_bytes"])
    assert np.array_equal(tables.leading_space, arrays["has_leading_space"])
    assert np.array_equal(tables.boundary, arrays["is_boundary"])


# SentencePiece has a sign of its own for a space, U+2581, which a text may hold, too.
@given(text=st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\u2581\0 a"), min_size=1))
def test_counted_bytes_are_the_texts(tiny: OwnDataset, text: str) -> None:
    tokenizer = load_tokenizer(tiny.tokenizer_path, tiny.vocab_size)
    tables = byte_tables(tokenizer, tiny.vocab_size)
    text = f"x{text}"  # a space right after BOS would not be counted
    (ids,) = encode_documents(tokenizer, [text])
    assert ids[0] == BOS_ID and tokenizer.decode(ids[1:].tolist()) == text
    assert tables.of(ids[:-1], ids[1:]).sum() == len(text.encode())
    ((same, counts),) = encode_with_bytes(tokenizer, [text])
    assert np.array_equal(ids, same) and counts.sum() == len(text.encode()) and len(counts) == len(ids)


@pytest.mark.parametrize("settings", [{"byte_fallback": False}, {"add_dummy_prefix": True, "byte_fallback": True}])
def test_a_tokenizer_that_takes_the_sign_for_a_space_is_refused(settings: dict[str, bool]) -> None:
    model, texts = io.BytesIO(), (make_text(20, seed) for seed in range(9))
    own: Any = {"model_type": "bpe", "vocab_size": 320, "pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3, **settings}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=texts, model_writer=model, minloglevel=2, hard_vocab_limit=False, **own
    )
    tokenizer = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    assert len(list(encode_documents(tokenizer, ["a text without it"]))) == 1
    with pytest.raises(GolfError, match=r"The text holds U\+2581.*replace it there, or leave --tokenizer out"):
        list(encode_documents(tokenizer, ["a text", "with▁it"]))


def test_a_space_after_a_document_start_is_not_counted(tiny: OwnDataset) -> None:
    tokenizer = load_tokenizer(tiny.tokenizer_path, tiny.vocab_size)
    tables = byte_tables(tokenizer, tiny.vocab_size)
    ids = np.array([BOS_ID, *tokenizer.encode(" the")])
    assert tables.of(ids[:-1], ids[1:]).sum() == 3


def test_control_pieces_and_padding_count_nothing(tiny: OwnDataset) -> None:
    tables = byte_tables(load_tokenizer(tiny.tokenizer_path, tiny.vocab_size), tiny.vocab_size + 5)
    assert tables.base_bytes.size == tiny.vocab_size + 5
    assert tables.base_bytes[:4].sum() == 0 and tables.boundary[:4].all()
    assert tables.base_bytes[-5:].sum() == 0 and tables.boundary[-5:].all()


def test_training_is_reproducible_and_leaves_no_path_behind() -> None:
    texts = [make_text(20, seed) for seed in range(5)]
    first = train_tokenizer(texts, 320)
    assert first == train_tokenizer(texts, 320)
    assert b"/" not in first.partition(b"identity")[2]


def test_wrong_tokenizers_are_refused(tiny: OwnDataset, tmp_path: Path) -> None:
    (tmp_path / "t.model").write_bytes(b"not a model")
    with pytest.raises(GolfError, match="not a SentencePiece model"):
        load_tokenizer(tmp_path / "t.model", 320)
    with pytest.raises(GolfError, match="does not exist"):
        load_tokenizer(tmp_path / "none.model", 320)
    with pytest.raises(GolfError, match=r"data\.vocab_size=400.*has 320 pieces.*set data\.vocab_size=320"):
        load_tokenizer(tiny.tokenizer_path, 400)


def test_a_vocabulary_the_text_cannot_fill_is_an_error() -> None:
    with pytest.raises(GolfError, match="cannot make 5000 pieces"):
        train_tokenizer(["a b"], 5000)
