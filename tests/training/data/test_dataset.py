"""Opening data: the fingerprint, the validation tokens, and what does not fit."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from golf.errors import GolfError
from golf.lab.corpora.own_text import OwnDataset, Recipe, make_dataset
from golf.settings.config import Config
from golf.training.data.dataset import open_dataset
from golf.training.data.shards import open_shard, write_shard
from tests.support import compose, make_text, tiny_overrides


def test_validation_tokens_are_whole_sequences_and_one_target(tiny: OwnDataset, tiny_cfg: Config) -> None:
    everything = open_shard(tiny.folder / "tiny_val_000000.bin")
    found = open_dataset(tiny_cfg).validation
    assert (found.size - 1) % 32 == 0 and 0 <= everything.size - found.size < 32
    assert np.array_equal(found, everything[: found.size])


def test_fingerprint_follows_content_not_place_or_sequence_length(tiny: OwnDataset, tmp_path: Path) -> None:
    original = open_dataset(compose(tiny_overrides(tiny))).fingerprint
    folder = Path(shutil.copytree(tiny.folder, tmp_path / "copy"))
    overrides = [*tiny_overrides(tiny), f"data.path={folder}"]
    assert open_dataset(compose([*overrides, "eval.seq_len=64"])).fingerprint == original
    for name in ("tiny_val_000000.bin", "tiny_train_000000.bin"):
        tokens = np.array(open_shard(folder / name))
        changed = tokens.copy()
        changed[0] = 5
        write_shard(folder / name, changed)
        assert open_dataset(compose(overrides)).fingerprint != original
        write_shard(folder / name, tokens)


def test_an_unexpected_fingerprint_stops(tiny: OwnDataset) -> None:
    with pytest.raises(GolfError, match=r"fingerprint \w{16}, but data\.fingerprint is abc"):
        open_dataset(compose([*tiny_overrides(tiny), "data.fingerprint=abc"]))


def test_a_vocabulary_that_is_not_the_tokenizers_stops(tiny: OwnDataset) -> None:
    with pytest.raises(GolfError, match=r"model\.vocab_size=512"):
        open_dataset(compose([*tiny_overrides(tiny), "model.vocab_size=512"]))
    with pytest.raises(GolfError, match=r"set data\.vocab_size=320"):
        open_dataset(compose([*tiny_overrides(tiny), "data.vocab_size=300"]))


def test_validation_tokens_beyond_the_vocabulary_stop(tiny: OwnDataset, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny.folder, tmp_path / "copy"))
    write_shard(folder / "tiny_val_000000.bin", np.full(100, 320))
    with pytest.raises(GolfError, match="hold token 320, but the vocabulary ends at 319"):
        open_dataset(compose([*tiny_overrides(tiny), f"data.path={folder}"]))


def test_a_tokenizer_that_did_not_write_the_shards_stops(tiny: OwnDataset, tmp_path: Path) -> None:
    # A text of a page would do so, too, until somebody edits that page.
    text = [make_text(6, seed)[::-1] for seed in range(60)]
    (tmp_path / "docs.jsonl").write_text("\n".join(json.dumps({"text": part}) for part in text))
    other = make_dataset([tmp_path / "docs.jsonl"], tmp_path, Recipe("other", tiny.vocab_size, val_every=6))
    wrong = [*tiny_overrides(tiny), f"data.tokenizer_path={other.tokenizer_path}"]
    with pytest.raises(GolfError, match=r"other tokens of the validation text .*data.fingerprint=\w{16}") as refused:
        open_dataset(compose(wrong))
    given = str(refused.value).rpartition(" ")[2].rstrip(".")
    assert open_dataset(compose([*wrong, given])).fingerprint == given.partition("=")[2]


def test_validation_shards_are_no_training_shards(tiny: OwnDataset) -> None:
    with pytest.raises(GolfError, match=r"data.val_files both name tiny_train_000000.bin: a score on text"):
        open_dataset(compose([*tiny_overrides(tiny), "data.val_files=tiny_*.bin"]))


def test_too_little_validation_text_stops(tiny: OwnDataset, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny.folder, tmp_path / "copy"))
    write_shard(folder / "tiny_val_000000.bin", np.arange(32))
    with pytest.raises(GolfError, match="less than one sequence"):
        open_dataset(compose([*tiny_overrides(tiny), f"data.path={folder}"]))


def test_one_text_has_one_digest_whatever_the_tokenizer(tmp_path: Path) -> None:
    documents = [make_text(6, seed).title() for seed in range(60)]

    def digest(name: str, vocab_size: int, *overrides: str, caseops: bool = False) -> str | None:
        source = tmp_path / f"{name}.jsonl"
        source.write_text("\n".join(json.dumps({"text": text}) for text in documents))
        made = make_dataset([source], tmp_path / name, Recipe("tiny", vocab_size, caseops=caseops, val_every=6))
        sidecar = f"data.byte_sidecar={str(caseops).lower()}"
        return open_dataset(compose([*tiny_overrides(made), sidecar, *overrides])).text_digest

    by_document = "eval.documents=true"
    plain = digest("plain", 320, by_document)
    assert plain and plain == digest("larger", 360, by_document)
    assert plain == digest("operators", 320, by_document, caseops=True)
    assert digest("sequences", 320) is None
    documents[5] += "."
    assert digest("changed", 320, by_document) not in (plain, None)
