"""Packed rows: the published batches, every target in shuffled passes, and the same rows whatever the ranks."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from golf.errors import GolfError
from golf.lab.corpora.own_text import OwnDataset
from golf.run.result import read_result
from golf.training.data.packed import (
    PackedLoader,
    SequentialRows,
    ShuffledRows,
    document_starts,
)
from golf.training.data.shards import find_shards, open_shard
from golf.training.ranks import Ranks
from tests.support import PARITY, golf_main, metrics, only_run, parity, refusal, tiny_overrides


def text(documents: list[int], first: int = 2) -> np.ndarray:
    """Documents of so many tokens each, BOS included, whose other tokens are all different."""
    parts, token = [], first
    for size in documents:
        parts += [1, *range(token, token + size - 1)]
        token += size - 1
    return np.array(parts, dtype=np.uint16)


def row(size: int, *bos: int) -> np.ndarray:
    ids = np.full(size, 7)
    ids[list(bos)] = 1
    return ids


@pytest.mark.parametrize(
    ("ids", "longest", "starts"),
    [
        (row(20, 3, 10), 6, [0, 3, 9, 10, 16, 20]),
        (row(20, 3, 10), 4, [0, 3, 7, 10, 14, 18, 20]),
        (row(8), 3, [0, 3, 6, 8]),
        (row(4, 0, 1, 2, 3), 2, [0, 1, 2, 3, 4]),
        (row(5, 0), 5, [0, 5]),
    ],
)
def test_starts_of_documents(ids: np.ndarray, longest: int, starts: list[int]) -> None:
    assert document_starts(ids, longest).tolist() == starts


def test_parity_with_the_public_loader() -> None:
    arrays, config = parity("loaders27")
    shards = [open_shard(p) for p in find_shards(PARITY / "tiny_dataset", "fineweb_train_*.bin", "train")]
    rows = SequentialRows(shards, config["global_tokens"] // config["grad_accum_steps"])
    loader = PackedLoader(rows, vocab_size=400)
    for call in range(max(config["packed_calls"]) + 1):
        inputs, targets = loader.next_batch()
        if call in config["packed_calls"]:
            assert np.array_equal(inputs, arrays[f"packed/{call}/x"])
            assert np.array_equal(targets, arrays[f"packed/{call}/y"])
            starts = document_starts(inputs[0].numpy(), config["env"]["TRAIN_SEQ_LEN"])
            padded = np.pad(starts, (0, -starts.size % 64), mode="edge")
            assert np.array_equal(padded, arrays[f"packed/{call}/cu_seqlens"])


def test_a_document_longer_than_the_row_goes_on_in_the_next_ones() -> None:
    document = text([50])
    loader = PackedLoader(SequentialRows([document], 10), vocab_size=100)
    rows = [loader.next_batch()[0][0].numpy() for _ in range(4)]
    assert [row.tolist() for row in rows] == [document[11 * i : 11 * i + 10].tolist() for i in range(4)]
    assert all(document_starts(row, 4).tolist() == [0, 4, 8, 10] for row in rows)


SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=12)


@given(shards=st.lists(SIZES, min_size=1, max_size=4), local_tokens=st.integers(1, 12), seed=st.integers(0, 99))
def test_a_shuffled_pass_has_every_document_and_every_target_once(
    shards: list[list[int]], local_tokens: int, seed: int
) -> None:
    tokens = [text(sizes, 2 + 1000 * i) for i, sizes in enumerate(shards)]
    rows, total = ShuffledRows(tokens, local_tokens, seed), sum(t.size for t in tokens)
    stream = np.concatenate([rows.read(i)[:-1] for i in range(2 * total // local_tokens + 2)])
    following = np.concatenate([rows.read(i)[1:] for i in range(2 * total // local_tokens + 2)])
    assert np.array_equal(stream[1:], following[:-1])
    documents = Counter(tuple(d) for t in tokens for d in np.split(t, np.flatnonzero(t == 1)[1:]))
    for part in (stream[:total], stream[total : 2 * total]):
        assert Counter(tuple(d) for d in np.split(part, np.flatnonzero(part == 1)[1:])) == documents


def test_the_end_of_a_document_of_the_shard_before_is_kept() -> None:
    whole = text([6, 5, 4])
    rows = ShuffledRows([whole[:9], whole[9:]], 15, seed=1)
    assert Counter(rows.read(0)[:-1].tolist()) == Counter(whole.tolist())


def test_shuffled_orders_follow_the_seed_and_the_pass() -> None:
    shards = [text([3] * 50), text([4] * 50, 500)]
    first = ShuffledRows(shards, 350, seed=1)
    again, other = ShuffledRows(shards, 350, seed=1), ShuffledRows(shards, 350, seed=2)
    assert np.array_equal(first.read(1), again.read(1))
    assert not np.array_equal(first.read(0), other.read(0)) and not np.array_equal(first.read(0), first.read(1))


@pytest.mark.parametrize("make", [lambda s: SequentialRows(s, 10), lambda s: ShuffledRows(s, 10, 3)])
def test_steps_do_not_depend_on_the_ranks_and_go_on_after_a_skip(make: Any) -> None:
    shards = [text([7, 5, 30, 2, 9]), text([12, 3, 20], 400)]

    def batches(world_size: int, skipped: int = 0) -> list[torch.Tensor]:
        ranks = [PackedLoader(make(shards), vocab_size=2000, ranks=Ranks(r, world_size)) for r in range(world_size)]
        for rank in ranks:
            rank.skip(skipped // world_size)
        return [t for _ in range((24 - skipped) // world_size) for rank in ranks for t in rank.next_batch()]

    alone = batches(1)
    for other, skipped in ((batches(2), 0), (batches(4), 0), (batches(4, 8), 8), (batches(1, 5), 5)):
        assert all(torch.equal(a, b) for a, b in zip(alone[2 * skipped :], other, strict=True))


def test_shards_that_make_no_rows_are_named() -> None:
    with pytest.raises(GolfError, match=r"Training shard 1 holds no BOS token \(1\), so its documents"):
        SequentialRows([text([9]), np.full(50, 7, dtype=np.uint16)], 5)
    with pytest.raises(GolfError, match=r"Training shard 0 holds no BOS token"):
        ShuffledRows([np.full(50, 7, dtype=np.uint16)], 5, 1)
    with pytest.raises(GolfError, match=r"None of the 1 training shards holds a row of 9 tokens and its last target"):
        SequentialRows([text([9])], 9)
    with pytest.raises(GolfError, match="holds 65 documents, more than the 64 that flash attention is prepared"):
        PackedLoader(SequentialRows([text([2] * 99)], 130), vocab_size=150, is_limited=True).next_batch()
    with pytest.raises(GolfError, match="hold token 11, but the vocabulary ends at 9"):
        PackedLoader(SequentialRows([text([12])], 10), vocab_size=10).next_batch()


PACKED = ["data.loader=packed", "model.within_documents=true", "eval.documents=true"]


def test_a_run_packs_trains_and_scores_by_document(tiny: OwnDataset, runs: Path) -> None:
    done = golf_main(*tiny_overrides(tiny), *PACKED, "eval.stride=8")
    assert done.returncode == 0, done.stderr + done.stdout
    result = read_result(only_run(runs) / "result.json")
    assert result.state == "ok" and result.tokens_seen == 6 * 512 and not result.warnings
    assert result.post_quant is not None and result.post_quant_sliding is not None
    assert (result.post_quant.how, result.post_quant_sliding.how) == (
        "standard by document",
        "sliding window by document, stride 8",
    )
    assert result.post_quant.tokens == result.post_quant_sliding.tokens == tiny.val_tokens - 1


MORE = [
    "data.loader=packed_shuffled",
    "eval.ttt.method=lora",
    "quant=gptq_int6",
    "tech=[bigram]",
    "tech.bigram.mask_bos=true",
]


@pytest.mark.slow
def test_two_ranks_train_as_one_does_on_packed_rows(tiny: OwnDataset, runs: Path) -> None:
    for nproc in (1, 2):
        done = golf_main(*tiny_overrides(tiny), *PACKED, *MORE, f"launch.nproc={nproc}")
        assert done.returncode == 0, done.stderr
    one, two = ([e["train_loss"] for e in metrics(p, "train")] for p in sorted(runs.glob("*/seed*")))
    assert len(one) == 6 and np.abs(np.array(one) - two).max() < 1e-3


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["data.loader=packed"], "attention has to stop: set model.within_documents=true"),
        (["model.within_documents=true"], "so scores have to be taken so: set eval.documents=true"),
        ([*PACKED, "tech=[smear]"], "set tech.smear.mask_bos=true, or drop it"),
        ([*PACKED, "tech=[bigram]"], "set tech.bigram.mask_bos=true, or drop it"),
        ([*PACKED, "data.shard_order=[0]"], "data.loader=packed mixes all shards"),
        ([*PACKED, "data.train_batch_tokens=262144"], "holds a row of 65536 tokens and its last target"),
    ],
)
def test_combinations_that_cannot_be_are_named(
    overrides: list[str], sentence: str, tiny: OwnDataset, runs: Path
) -> None:
    assert sentence in refusal(*tiny_overrides(tiny), *overrides)
