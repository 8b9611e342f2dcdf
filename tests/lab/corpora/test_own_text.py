"""Own text to shards: every document once, in the right split, decodable."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from golf.errors import GolfError
from golf.lab.corpora import own_text
from golf.lab.corpora.own_text import OwnDataset, Recipe, make_dataset, read_documents
from golf.training.data.byte_tables import load_tokenizer
from golf.training.data.caseops import OPERATORS, decode_capitals, operator_ids
from golf.training.data.documents import BOS_ID, ShardWriter, train_tokenizer
from golf.training.data.shards import find_shards, open_shard
from tests.field.test_byte_audit import field_tokenizer, written
from tests.support import golf_command, make_text, parity


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


def test_empty_lines_and_a_byte_order_mark_are_no_documents(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"text": "one"}\r\n\n{"text": "two"}\n\n')
    assert list(read_documents([tmp_path / "a.jsonl"])) == ["one", "two"]


@pytest.mark.parametrize(
    ("recipe", "sentence"),
    [
        (Recipe("../elsewhere", 320), r"--name '\.\./elsewhere' names files: give a word without slashes"),
        (Recipe("", 320), "--name '' names files"),
        (Recipe("x", 320, prefix="a/b"), "--prefix 'a/b' names files"),
        (Recipe("x", 65_537), "--vocab-size 65537 is too large: 65536 pieces are the most"),
    ],
)
def test_what_cannot_be_stored_is_refused_before_anything_is_read(
    recipe: Recipe, sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(GolfError, match=sentence):
        make_dataset([tmp_path / "absent.jsonl"], tmp_path / "root", recipe)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.jsonl", b'{"other": 1}\n', "line 1 is not a JSON object with a 'text'"),
        ("a.jsonl", b'{"text": "x"}\n[]\n', "line 2"),
        ("a.jsonl", b"not json", "line 1"),
        ("a.jsonl", b'{"text": 5}', "is not a string"),
        ("a.jsonl", b'{"text": "\xff"}', r"line 1 is not UTF-8 text \(byte 10\)"),
        ("a.txt", b"\xff\xfe", "not UTF-8"),
    ],
)
def test_faulty_sources_are_named(name: str, content: bytes, sentence: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(GolfError, match=sentence):
        list(read_documents([tmp_path / name]))


def test_a_text_file_begins_behind_its_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "marked.txt").write_bytes(b"\xef\xbb\xbfthe text")
    assert list(read_documents([tmp_path / "marked.txt"])) == ["the text"]


def test_one_bad_file_does_not_stop_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "b.png").write_bytes(b"\x89PNG\xff")
    (tmp_path / "c.jsonl").write_text('{"text": "two"}\nbroken\n{"text": "lost"}\n')
    (tmp_path / "d.txt").write_text("three")
    skipped: list[str] = []
    assert list(read_documents([tmp_path], skipped=skipped)) == ["one", "two", "three"]
    assert len(skipped) == 2 and "b.png is not UTF-8" in skipped[0] and "c.jsonl line 2 is not JSON" in skipped[1]


def test_text_and_pieces_that_do_not_fit_say_how_many_would(tmp_path: Path) -> None:
    with pytest.raises(GolfError, match=r"cannot make 1024 pieces from this text: choose --vocab-size \d+ or less"):
        train_tokenizer(["a few words", "and a few more"], 1024)
    with pytest.raises(GolfError, match=r"cannot make 100 pieces from this text: choose --vocab-size 2\d\d or more"):
        train_tokenizer(["a few words", "and a few more"], 100)


def test_an_existing_data_set_is_not_touched_and_too_little_text_leaves_none(tiny: OwnDataset, tmp_path: Path) -> None:
    root = tiny.folder.parents[1]
    with pytest.raises(GolfError, match="exists already"):
        make_dataset([root / "docs.jsonl"], root, Recipe("tiny", 320))
    with pytest.raises(GolfError, match="fewer than 20 documents, and a text file is one document"):
        make_dataset([Path(__file__)], tmp_path, Recipe("one", 320))
    assert list(tmp_path.iterdir()) == []


def test_shards_are_cut_at_their_size(tmp_path: Path) -> None:
    writer = ShardWriter(tmp_path, "x", shard_tokens=10)
    for size in (4, 25, 1):
        writer.add(np.arange(size))
    writer.close()
    sizes = [open_shard(p).size for p in sorted(tmp_path.glob("x_*.bin"))]
    assert sizes == [10, 10, 10] and writer.total_tokens == 30
    joined = np.concatenate([open_shard(p) for p in sorted(tmp_path.glob("x_*.bin"))])
    assert joined.tolist() == [*range(4), *range(25), 0]


def caseops_set(root: Path, texts: list[str], **recipe: Any) -> OwnDataset:
    (root / "docs.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return make_dataset([root / "docs.jsonl"], root, Recipe("capitals", 300, caseops=True, **recipe))


def test_caseops_shards_and_sidecar_carry_the_texts(tmp_path: Path) -> None:
    texts = [f"Document {seed}: {make_text(8, seed).title()} É{seed}" for seed in range(40)]
    made = caseops_set(tmp_path, texts, val_docs=9)
    tokenizer = load_tokenizer(made.tokenizer_path, 300)

    def documents(split: str) -> list[str]:
        tokens = open_shard(made.folder / f"capitals_{split}_000000.bin")
        starts = np.flatnonzero(tokens == BOS_ID)
        return [decode_capitals(tokenizer.decode(part[1:].tolist())) for part in np.split(tokens, starts[1:])]

    assert documents("val") == texts[:9] and documents("train") == texts[9:]
    tokens, counts = (open_shard(made.folder / f"capitals_val_{part}000000.bin") for part in ("", "bytes_"))
    starts = np.flatnonzero(tokens == BOS_ID)
    assert np.add.reduceat(counts.astype(int), starts).tolist() == [len(text.encode()) for text in texts[:9]]
    assert not counts[np.isin(tokens, [BOS_ID, 4, 5, 6, 7])].any()
    assert not list(made.folder.glob("*train_bytes*"))


def test_parity_with_the_public_preparation(tmp_path: Path) -> None:
    arrays, config = parity("caseops_a")
    (tmp_path / "public.model").write_bytes(arrays["tokenizer_model"].tobytes())
    # The public script writes an empty document as a lone BOS; here empty documents are left out.
    texts = [row["text"] for row in config["rows"] if row["text"].strip()]
    empty = len(config["rows"]) - len(texts)
    (tmp_path / "docs.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    recipe = Recipe("own", 512, tmp_path / "public.model", caseops=True, val_docs=20 - empty, prefix="fineweb")
    made = make_dataset([tmp_path / "docs.jsonl"], tmp_path, recipe)
    written = {path.stem: open_shard(path) for path in made.folder.iterdir()}
    public = {key.removeprefix("shard/"): value for key, value in arrays.items() if key.startswith("shard/")}
    assert written.keys() == public.keys()
    assert np.array_equal(written["fineweb_train_000000"], public["fineweb_train_000000"])
    for name in ("fineweb_val_000000", "fineweb_val_bytes_000000"):
        lone = np.flatnonzero((public["fineweb_val_000000"][:-1] == 1) & (public["fineweb_val_000000"][1:] == 1))
        assert lone.size == empty
        assert np.array_equal(written[name], np.delete(public[name], lone))


def test_splits_share_no_document(tmp_path: Path) -> None:
    texts = [make_text(4, seed) for seed in range(12)]
    made = caseops_set(tmp_path, [texts[3], *texts, " ", "", texts[5], "a \ue002 of its own"], val_docs=1)
    assert (made.documents, made.val_documents, made.repeated, made.empty, made.escaped) == (15, 1, 1, 2, 1)


@pytest.mark.parametrize(
    ("texts", "recipe", "sentence"),
    [
        (["", " \n"], {"val_docs": 1}, "No document holds text"),
        (["one", "two"], {"val_docs": 2}, "There are 2 documents: --val-docs=2 leaves none for training"),
        (["one", "one"], {"val_docs": 1}, "Every training document is in the validation split as well"),
        (["one", "half \ud801"], {"val_docs": 1}, r"line 2: 'text' holds \\ud801, half of a character"),
        (["one", "two"], {"val_docs": 1, "tokenizer_path": "tiny"}, "has no pieces for the CaseOps operators"),
        (["one", "two"], {"fused": True, "tokenizer_path": "tiny"}, "--fuse-operators trains a tokenizer"),
        (["one", "two"], {"fused": True, "caseops": False}, "add --caseops, and give no --tokenizer"),
    ],
)
def test_texts_that_make_no_data_set_leave_nothing(
    texts: list[str], recipe: dict[str, Any], sentence: str, tiny: OwnDataset, tmp_path: Path
) -> None:
    if "tokenizer_path" in recipe:
        recipe = {**recipe, "tokenizer_path": tiny.tokenizer_path}
        texts = [*texts, *texts]
    (tmp_path / "docs.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    made = Recipe("capitals", 320, **{"caseops": True, **recipe})
    with pytest.raises(GolfError, match=sentence):
        make_dataset([tmp_path / "docs.jsonl"], tmp_path, made)
    assert [path.name for path in tmp_path.iterdir()] == ["docs.jsonl"]


def test_a_token_that_no_sidecar_can_hold_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("golf.training.data.documents.MOST_BYTES", 2)
    with pytest.raises(GolfError, match="A token of document 0 of the validation split stands for"):
        caseops_set(tmp_path, [make_text(8, seed).title() for seed in range(30)], val_docs=3)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "docs.jsonl"]


def test_the_command_says_what_it_did(tmp_path: Path) -> None:
    texts = [make_text(8, seed).title() for seed in range(30)]
    (tmp_path / "docs.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in [*texts, "", texts[0]]))
    arguments = (str(tmp_path / "docs.jsonl"), "--name", "mine", "--vocab-size", "300", "--root", str(tmp_path))
    done = golf_command("data", "tokenize", *arguments, "--caseops", "--val-docs", "3")
    assert done.returncode == 0, done.stderr
    assert "validation: 3 documents, whose text no training document has" in done.stdout
    assert "left out of training, because validation has the same text: 1 document" in done.stdout
    assert "left out, because they are empty: 1 document" in done.stdout
    assert "data.vocab_size=300 data.byte_sidecar=true" in done.stdout


def test_the_tokenizer_is_trained_on_the_first_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_text, "TOKENIZER_SAMPLE_CHARS", 6)
    assert list(own_text._first_chars(["abcd", "ef", "gh"])) == ["abcd", "ef"]
    assert list(own_text._first_chars(["abc", "de"])) == ["abc", "de"]


ORDINARY = [f"The quick brown fox number {i} jumps over {i * 7} lazy dogs." for i in range(60)]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"bos_id": -1, "eos_id": -1}, "but documents begin with it"),
        ({"bos_id": 3, "unk_id": 0, "pad_id": -1}, "but documents begin with it"),
        ({"treat_whitespace_as_suffix": True, "add_dummy_prefix": True}, "bytes more than the validation text has"),
    ],
)
def test_a_tokenizer_that_would_count_too_many_bytes_is_refused(
    options: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    """Tokens of text in the place of BOS, and spaces that no document has, once made scores up to 3 % too good."""
    source = written(tmp_path / "docs.jsonl", *ORDINARY)
    with pytest.raises(GolfError, match=sentence):
        make_dataset([source], tmp_path, Recipe("own", 330, field_tokenizer(tmp_path / "own.model", **options)))
    assert not (tmp_path / "datasets/own").exists()
    make_dataset([source], tmp_path, Recipe("own", 330, field_tokenizer(tmp_path / "usual.model")))


def test_text_with_the_operators_of_caseops_is_plain_text(tmp_path: Path) -> None:
    """Enough of them to get pieces once made the tokenizer one of CaseOps text."""
    texts = [f"{text} Mark {OPERATORS} here." for text in ORDINARY]
    made = make_dataset([written(tmp_path / "docs.jsonl", *texts)], tmp_path, Recipe("own", 320))
    model = load_tokenizer(made.tokenizer_path, 320)
    assert not operator_ids(model) and documents_of(made, "val")[0] == texts[19]
