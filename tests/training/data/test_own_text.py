"""Own text to shards: every document once, in the right split, decodable."""

import json
from pathlib import Path

import numpy as np
import pytest

from golf.errors import GolfError
from golf.training.data.byte_tables import load_tokenizer
from golf.training.data.documents import BOS_ID, ShardWriter
from golf.training.data.own_text import OwnDataset, make_dataset, read_documents
from golf.training.data.shards import find_shards, open_shard
from tests.support import make_text


def documents_of(tiny: OwnDataset, split: str) -> list[str]:
    tokenizer = load_tokenizer(tiny.tokenizer_path, tiny.vocab_size)
    tokens = np.concatenate([open_shard(p) for p in find_shards(tiny.folder, f"*_{split}_*.bin", split)])
    starts = np.flatnonzero(tokens == BOS_ID)
    return [tokenizer.decode(part[1:].tolist()) for part in np.split(tokens, starts[1:])]


def test_every_document_is_in_one_split_unchanged(tiny: OwnDataset) -> None:
    texts = [make_text(6, seed) for seed in range(60)]
    assert documents_of(tiny, "val") == texts[5::6]
    assert documents_of(tiny, "train") == [t for i, t in enumerate(texts) if i % 6 != 5]
    assert tiny.documents == 60


def test_sources_of_all_kinds(tmp_path: Path) -> None:
    (tmp_path / "folder/deep").mkdir(parents=True)
    (tmp_path / "folder/deep/b.txt").write_text("two")
    (tmp_path / "folder/a.md").write_text("one")
    (tmp_path / "folder/empty.txt").write_text(" \n")
    (tmp_path / "x.jsonl").write_text(json.dumps({"body": "three"}) + "\n")
    found = read_documents([tmp_path / "folder", tmp_path / "x.jsonl"], text_key="body")
    assert list(found) == ["one", "two", "three"]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.jsonl", b'{"other": 1}\n', "line 1 is not a JSON object with a 'text'"),
        ("a.jsonl", b'{"text": "x"}\n[]\n', "line 2"),
        ("a.jsonl", b"not json", "line 1"),
        ("a.jsonl", b'{"text": 5}', "is not a string"),
        ("a.txt", b"\xff\xfe", "not UTF-8"),
    ],
)
def test_faulty_sources_are_named(name: str, content: bytes, sentence: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(GolfError, match=sentence):
        list(read_documents([tmp_path / name]))


def test_an_existing_data_set_is_not_touched_and_too_little_text_leaves_none(tiny: OwnDataset, tmp_path: Path) -> None:
    root = tiny.folder.parents[1]
    with pytest.raises(GolfError, match="exists already"):
        make_dataset([root / "docs.jsonl"], name="tiny", root=root, vocab_size=320)
    with pytest.raises(GolfError, match="fewer than 20 documents"):
        make_dataset(
            [Path(__file__)], name="one", root=tmp_path, vocab_size=tiny.vocab_size, tokenizer_path=tiny.tokenizer_path
        )
    assert list((tmp_path / "datasets").iterdir()) == []


def test_shards_are_cut_at_their_size(tmp_path: Path) -> None:
    writer = ShardWriter(tmp_path, "x", shard_tokens=10)
    for size in (4, 25, 1):
        writer.add(np.arange(size))
    writer.close()
    sizes = [open_shard(p).size for p in sorted(tmp_path.glob("x_*.bin"))]
    assert sizes == [10, 10, 10] and writer.total_tokens == 30
    joined = np.concatenate([open_shard(p) for p in sorted(tmp_path.glob("x_*.bin"))])
    assert joined.tolist() == [*range(4), *range(25), 0]
