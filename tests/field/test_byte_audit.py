"""Byte tables against decoded and raw text, with real tokenizers made here: byte fallback, spaces, unknown letters."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece

from golf.errors import GolfError
from golf.field import byte_audit
from golf.field.audit import Audit
from golf.field.byte_audit import audit_bytes
from golf.lab.corpora.own_text import OwnDataset
from golf.training.data.byte_tables import ByteTables
from golf.training.data.documents import train_tokenizer
from tests.support import make_text

TEXTS = [make_text(4, seed) for seed in range(50)]


def field_tokenizer(path: Path, **settings: Any) -> Path:
    """As the challenge's: BPE with byte fallback and NFKC, BOS 1; `settings` change that."""
    model = io.BytesIO()
    usual: dict[str, Any] = {"model_type": "bpe", "vocab_size": 330, "byte_fallback": True, "add_dummy_prefix": False}
    ids: dict[str, Any] = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3, "minloglevel": 2}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS), model_writer=model, **{**usual, **ids, **settings}
    )
    path.write_bytes(model.getvalue())
    return path


def found(tokenizer: Path, data: Path | None = None, text: Path | None = None) -> Audit:
    audit = Audit()
    audit_bytes(tokenizer.parent / "no_folder", tokenizer, data, text, audit)
    return audit


def written(path: Path, *documents: str) -> Path:
    path.write_text("".join(json.dumps({"text": document}) + "\n" for document in documents))
    return path


@pytest.mark.parametrize(
    "settings",
    [{}, {"add_dummy_prefix": True}, {"bos_id": -1}, {"model_type": "unigram", "vocab_size": 290}],
    ids=["standard", "dummy prefix", "no BOS", "unigram"],
)
def test_the_challenges_tokenizers_are_not_faulty(tmp_path: Path, settings: dict) -> None:
    """They normalise: NFKC makes 18 letters of one, spaces and control characters go. That is told, and no fault."""
    audit = found(field_tokenizer(tmp_path / "t.model", **settings))
    assert audit.faults == [] and audit.look_at == []
    assert any("16 samples" in line and "as they decode" in line for line in audit.in_order)
    assert any("normalises text" in line for line in audit.unchecked)


def test_own_tokenizers_lose_only_the_space_that_a_document_begins_with(tmp_path: Path) -> None:
    (tmp_path / "own.model").write_bytes(train_tokenizer(TEXTS, 330))
    audit = found(tmp_path / "own.model")
    assert audit.faults == [] and audit.look_at == []
    assert any("but for the space that a document begins with" in line for line in audit.in_order)
    assert not any("normalises" in line for line in audit.unchecked)
    documents = [" begins with a space", "two  spaces, \n\nlines ", "é 漢字 🏌️ ½ ﷺ", "nul \0 and \x01", *TEXTS]
    audit = found(tmp_path / "own.model", text=written(tmp_path / "raw.jsonl", *documents))
    raw = sum(len(document.encode()) for document in documents)
    assert audit.look_at == [] and any(
        f"counts {raw - 1:,} bytes for {raw:,} of raw text" in line for line in audit.in_order
    )


def test_raw_text_shows_what_normalisation_does_to_the_bytes(tmp_path: Path) -> None:
    tokenizer = field_tokenizer(tmp_path / "t.model")
    plain = written(tmp_path / "plain.jsonl", *(" ".join(text.split()) for text in TEXTS))
    assert found(tokenizer, text=plain).look_at == []
    for document, share, effect in (("a    b\u200b", "3 bytes for 9", "worse"), ("ﷺ", "33 bytes for 3", "better")):
        audit = found(tokenizer, text=written(tmp_path / "raw.jsonl", document))
        assert audit.faults == [] and len(audit.look_at) == 1
        assert share in audit.look_at[0] and f"its score is {effect} than the text's" in audit.look_at[0]


def test_unknown_letters_count_nothing_and_are_told(tmp_path: Path) -> None:
    audit = found(field_tokenizer(tmp_path / "t.model", byte_fallback=False, vocab_size=70))
    assert audit.faults == []
    assert len(audit.look_at) == 1 and "unknown tokens in 14 of 16 samples" in audit.look_at[0]


def test_whole_documents_of_real_shards_and_the_bytes_that_logs_say(tiny: OwnDataset) -> None:
    audit = found(tiny.tokenizer_path, tiny.folder)
    assert audit.faults == [] and any("10 whole documents of the shards" in line for line in audit.in_order)
    tokens = np.fromfile(next(tiny.folder.glob("*_val_*.bin")), "<u2")[512:]
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(tiny.tokenizer_path))
    real = sum(len(tokenizer.decode(d.tolist()).encode()) for d in np.split(tokens, np.flatnonzero(tokens == 1)))
    for factor, expected in ((1.0, []), (1.0413, ["a flattered score"]), (0.9, ["too few"])):
        audit = Audit(scored=(tokens.size - 1, real * factor))
        audit_bytes(tiny.folder, tiny.tokenizer_path, tiny.folder, None, audit)
        assert len(audit.faults) == len(expected) and all(e in f for e, f in zip(expected, audit.faults, strict=True))


def test_a_wrong_table_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer, right = field_tokenizer(tmp_path / "t.model", add_dummy_prefix=True), byte_audit.byte_tables

    def with_spaces_everywhere(*args: object) -> ByteTables:  # as after PR #1545
        tables = right(*args)  # type: ignore[arg-type]
        return ByteTables(tables.base_bytes, tables.leading_space, np.zeros_like(tables.boundary))

    def by_name(*args: object) -> ByteTables:  # a byte token is called <0x41>: six bytes instead of one
        tables, pieces = right(*args), byte_audit.open_tokenizer(tokenizer)  # type: ignore[arg-type]
        is_byte = np.array([pieces.is_byte(i) for i in range(pieces.vocab_size())])
        return ByteTables(np.where(is_byte, 6, tables.base_bytes), tables.leading_space, tables.boundary)

    for table in (with_spaces_everywhere, by_name):
        monkeypatch.setattr(byte_audit, "byte_tables", table)
        assert len(faults := found(tokenizer).faults) == 1 and "counts too many bytes" in faults[0]


def test_mistakes_are_told_and_a_foreign_model_beside_the_logs_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "final.model").write_bytes(b"weights")
    audit = Audit()
    audit_bytes(tmp_path, None, None, None, audit)
    assert audit.faults == [] and "final.model is not a SentencePiece model" in audit.unchecked[0]
    with pytest.raises(GolfError, match="is not a SentencePiece model"):
        audit_bytes(tmp_path, tmp_path / "final.model", None, None, audit)
    with pytest.raises(GolfError, match="holds no tokenizer"):
        audit_bytes(tmp_path / "other", None, tmp_path, None, audit)
