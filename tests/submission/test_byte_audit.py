"""Byte tables against decoded text, with real tokenizers made here: byte fallback, leading spaces, dummy prefixes."""

import io

import numpy as np
import pytest
import sentencepiece

from golf.data.own_text import OwnDataset
from golf.data.tokenizer import ByteTables
from golf.submission import byte_audit
from golf.submission.byte_audit import audit_documents, audit_tokenizer, open_tokenizer
from tests.support import make_text


def field_tokenizer(add_dummy_prefix: bool) -> sentencepiece.SentencePieceProcessor:
    """As the challenge's: BPE with byte fallback, BOS 1, a space put before the text or not."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([make_text(4, seed) for seed in range(50)]),
        model_writer=model,
        model_type="bpe",
        vocab_size=330,
        byte_fallback=True,
        add_dummy_prefix=add_dummy_prefix,
        minloglevel=2,
        pad_id=0,
        bos_id=1,
        eos_id=2,
        unk_id=3,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


@pytest.mark.parametrize("add_dummy_prefix", [True, False])
def test_tables_count_what_tokens_decode_to(add_dummy_prefix: bool) -> None:
    assert audit_tokenizer(field_tokenizer(add_dummy_prefix)) == []


def test_whole_documents_of_real_shards(tiny: OwnDataset) -> None:
    tokenizer = open_tokenizer(tiny.tokenizer_path)
    documents, faults = audit_documents(tokenizer, tiny.folder, "*_val_*.bin")
    assert documents == 10 and faults == []


def test_a_wrong_table_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer, right = field_tokenizer(add_dummy_prefix=True), byte_audit.byte_tables

    def with_spaces_everywhere(*args: object) -> ByteTables:
        tables = right(*args)  # type: ignore[arg-type]
        return ByteTables(tables.base_bytes, tables.leading_space, np.zeros_like(tables.boundary))

    def by_name(*args: object) -> ByteTables:  # a byte token is called <0x41>: six bytes instead of one
        tables = right(*args)  # type: ignore[arg-type]
        longer = tables.base_bytes.copy()
        longer[[i for i in range(tokenizer.vocab_size()) if tokenizer.is_byte(i)]] = 6
        return ByteTables(longer, tables.leading_space, tables.boundary)

    monkeypatch.setattr(byte_audit, "byte_tables", with_spaces_everywhere)
    assert any("leading space" in fault for fault in audit_tokenizer(tokenizer))
    monkeypatch.setattr(byte_audit, "byte_tables", by_name)
    assert any("漢" in fault for fault in audit_tokenizer(tokenizer))
