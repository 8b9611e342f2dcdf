"""Sidecars: bits per byte of CaseOps text are those of its UTF-8 bytes, and a sidecar that does not fit is refused."""

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import sentencepiece

from golf.errors import GolfError
from golf.lab.corpora.own_text import OwnDataset, Recipe, make_dataset
from golf.run.result import read_result
from golf.settings.config import Config
from golf.training.data import sidecar
from golf.training.data.byte_tables import load_tokenizer
from golf.training.data.dataset import open_dataset
from golf.training.data.shards import open_shard, write_shard
from golf.training.data.sidecar import check_sidecar, sidecar_faults
from tests.support import compose, golf_main, make_text, only_run, parity, refusal, tiny_overrides

VAL, SIDECAR = "capitals_val_000000.bin", "capitals_val_bytes_000000.bin"


@pytest.fixture(scope="module")
def capitals(tmp_path_factory: pytest.TempPathFactory) -> OwnDataset:
    """The words of the data set `tiny` with capitals, as CaseOps text."""
    root = tmp_path_factory.mktemp("capitals")
    texts = [make_text(6, seed).title() for seed in range(60)]
    (root / "docs.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return make_dataset([root / "docs.jsonl"], root, Recipe("capitals", 320, caseops=True, val_every=6))


def overrides(made: OwnDataset, folder: Path | None = None) -> list[str]:
    return [*tiny_overrides(made), "data.byte_sidecar=true", f"data.path={folder or made.folder}"]


def config(made: OwnDataset, folder: Path | None = None) -> Config:
    return compose(overrides(made, folder))


def test_bytes_of_targets_are_those_of_the_text(capitals: OwnDataset) -> None:
    dataset = open_dataset(config(capitals))
    texts = [make_text(6, seed).title() for seed in range(5, 60, 6)]
    tokens, counts = dataset.validation, dataset.target_bytes
    assert counts.size == tokens.size - 1
    starts = np.flatnonzero(tokens == 1)
    whole = [int(counts[start : end - 1].sum()) for start, end in itertools.pairwise(starts)]
    assert whole == [len(text.encode()) for text in texts[: len(whole)]] and len(whole) >= 5


@pytest.mark.slow
def test_a_run_counts_the_bytes_of_the_text(capitals: OwnDataset, runs: Path) -> None:
    done = golf_main(*overrides(capitals))
    assert done.returncode == 0, done.stderr
    result = read_result(only_run(runs) / "result.json")
    dataset = open_dataset(config(capitals))
    assert result.state == "ok" and result.data_fingerprint == dataset.fingerprint
    assert result.post_quant is not None and result.post_quant.bytes == dataset.target_bytes.sum()


def test_the_sidecar_is_part_of_the_fingerprint(capitals: OwnDataset, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(capitals.folder, tmp_path / "copy"))
    assert open_dataset(config(capitals, folder)).fingerprint == open_dataset(config(capitals)).fingerprint
    counts = np.array(open_shard(folder / SIDECAR))
    spaces = [i for i in range(320) if tokenizer_of(capitals).id_to_piece(i) == "▁"]
    counts[np.flatnonzero(open_shard(folder / VAL) == spaces[0])[0]] += 2  # a space of three bytes in the text
    write_shard(folder / SIDECAR, counts)
    assert open_dataset(config(capitals, folder)).fingerprint != open_dataset(config(capitals)).fingerprint


def tokenizer_of(made: OwnDataset) -> sentencepiece.SentencePieceProcessor:
    return load_tokenizer(made.tokenizer_path, made.vocab_size)


def _operators_count(counts: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """The fault of the preparation scripts of 19 to 23 April: each operator counts its own three bytes."""
    return np.where(np.isin(tokens, [4, 5, 6, 7]), 3, counts)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda counts, tokens: counts[:-1], r"holds \d+ entries for the \d+ tokens of capitals_val_000000\.bin"),
        (lambda counts, tokens: np.append(counts, 1), r"holds \d+ entries for the \d+ tokens"),
        (
            _operators_count,
            r"counts [\d,]+ bytes on [\d,]+ case operators, which stand for no text \(\+\d",
        ),
        (lambda counts, tokens: np.where(tokens == 1, 1, counts), "bytes on BOS and other control tokens"),
        (lambda counts, tokens: np.where(np.isin(tokens, range(8)), 0, np.roll(counts, 7)), "so it is of other text"),
    ],
)
def test_a_sidecar_that_does_not_fit_is_refused(
    change: Callable[[np.ndarray, np.ndarray], np.ndarray], sentence: str, capitals: OwnDataset, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(capitals.folder, tmp_path / "copy"))
    write_shard(folder / SIDECAR, change(np.array(open_shard(folder / SIDECAR)), open_shard(folder / VAL)))
    with pytest.raises(GolfError, match=sentence) as refused:
        open_dataset(config(capitals, folder))
    assert "\n" not in str(refused.value) and str(refused.value).count(". ") == 0


def test_a_missing_sidecar_or_setting_is_named(capitals: OwnDataset, tiny: OwnDataset, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(capitals.folder, tmp_path / "copy"))
    (folder / SIDECAR).unlink()
    assert f"{VAL} has no sidecar {SIDECAR}" in refusal(*overrides(capitals, folder))
    assert "set data.byte_sidecar=true" in refusal(*overrides(capitals), "data.byte_sidecar=false")
    assert "has no sidecar tiny_val_bytes_000000.bin" in refusal(*tiny_overrides(tiny), "data.byte_sidecar=true")


def test_the_public_sidecar_is_accepted_and_the_over_count_is_not() -> None:
    arrays, _ = parity("caseops_a")
    tokenizer = sentencepiece.SentencePieceProcessor(model_proto=arrays["tokenizer_model"].tobytes())
    tokens, counts = arrays["shard/fineweb_val_000000"], arrays["shard/fineweb_val_bytes_000000"]
    check_sidecar(counts, tokens, tokenizer)
    unescaped = np.isin(tokens, [4, 5, 6, 7]) & (counts == 0)
    (fault,) = sidecar_faults(np.where(unescaped, 3, counts), tokens, tokenizer)
    assert fault.startswith(f"counts {3 * unescaped.sum()} bytes on {unescaped.sum()} case operators")


def test_an_escaped_escape_escapes_nothing() -> None:
    """Escapes are 9: the second stands for itself, and what follows it is not escaped."""
    assert sidecar._escaped(np.array([9, 9, 5, 9, 6]), 9).tolist() == [False, True, False, False, True]
