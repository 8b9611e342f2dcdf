"""Orders of the training text by techniques: every window and every document once, in the order that was asked for."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from golf.errors import GolfError
from golf.lab.corpora.own_text import OwnDataset
from golf.lab.proofs.run_proofs import failed_proofs, unchanged_order
from golf.run.result import OK, read_result
from golf.settings.config import Config, scored_config
from golf.training.data.batches import make_loader
from golf.training.data.dataset import open_dataset
from golf.training.data.documents import BOS_ID
from golf.training.data.orders import OrderedRows, OrderedWindows, Units, refuse_other_orders
from golf.training.ranks import Ranks
from golf.training.techniques.base import CHANGES_ORDER, Technique, technique
from tests.support import compose, golf_main, on_ranks, only_run, refusal, tiny_overrides, with_techniques

PACKED = ["data.loader=packed_shuffled", "model.within_documents=true", "eval.documents=true"]


def shards(*sizes: int) -> list[np.ndarray]:
    """Return shards of random tokens with documents of random lengths."""
    random = np.random.default_rng(0)
    made = [random.integers(2, 100, size).astype(np.uint16) for size in sizes]
    for tokens in made:
        tokens[[0, *random.choice(tokens.size, tokens.size // 9, replace=False)]] = BOS_ID
    return made


def by_sum(units: Units) -> np.ndarray:
    """Return the places by the sum of their tokens."""
    return np.argsort([int(units.read(place).sum()) for place in range(units.lengths.size)], kind="stable")


def test_windows_of_two_passes_come_in_the_order_of_the_technique() -> None:
    text, numbers = shards(100, 47), []

    def order(units: Units) -> np.ndarray:
        numbers.append(units.number)
        return by_sum(units)

    windows = OrderedWindows(text, seq_len=8, seed=3, order=order)
    for number in (0, 1):
        drawn = windows.draw(windows.blocks.size)
        sums = [int(text[shard][first : first + 9].sum()) for shard, first in drawn]
        assert sums == sorted(sums)
        # A grid of blocks: no token is the input of two windows, and fewer than a block at either end is in none.
        inputs = {(shard, first + i) for shard, first in drawn.tolist() for i in range(8)}
        assert len(inputs) == 8 * len(drawn) and len(inputs) > 147 - 4 * 8
        assert numbers == [*range(number + 1)]


def test_documents_of_each_shard_come_in_the_order_of_the_technique() -> None:
    text = shards(90, 70)
    rows = OrderedRows(text, 40, 5, by_sum)
    found = np.concatenate([rows.read(row)[:-1] for row in range(4)])
    documents = [part for shard in text for part in np.split(shard, np.flatnonzero(shard == BOS_ID)[1:])]
    expected = []
    for shard in np.random.default_rng([5, 0]).permutation(2):
        of_shard = np.split(text[shard], np.flatnonzero(text[shard] == BOS_ID)[1:])
        expected += sorted(of_shard, key=lambda document: int(document.sum()))
    assert len(documents) == len(expected) and found.tolist() == np.concatenate(expected).tolist()


@pytest.mark.parametrize("places", [[0, 0, 2], [0, 1, 2, 3, 4], [1, 2, 3], [0.0, 1.0, 1.5], [[0, 1, 2]], None])
def test_an_order_that_lacks_a_place_is_refused(places: Any) -> None:
    with pytest.raises(GolfError, match="return each from 0 once"):
        OrderedWindows(shards(25), seq_len=8, seed=1, order=lambda units: np.array(places))


def differing(rank: int, world_size: int, packed: bool) -> str:
    """Return what a rank says whose order is another one than that of the first."""

    def order(units: Units) -> np.ndarray:
        return np.roll(np.arange(units.lengths.size), rank)

    text = shards(100)
    windows = OrderedWindows(text, seq_len=8, seed=1, order=order)
    try:
        refuse_other_orders(OrderedRows(text, 40, 1, order) if packed else windows, Ranks(rank, world_size))
    except GolfError as error:
        return str(error)
    return "same"


@pytest.mark.slow
@pytest.mark.parametrize("packed", [False, True])
def test_ranks_with_other_orders_end_the_run(packed: bool, tmp_path: Path) -> None:
    assert all("put the training text in different orders" in said for said in on_ranks(2, tmp_path, differing, packed))
    assert differing(0, 1, packed) == "same"


@dataclass
class Planted(Technique):
    """An order of a test."""

    source = "planted"
    effect = CHANGES_ORDER

    def data_order(self, cfg: Config) -> Callable[[Units], np.ndarray]:
        return by_sum


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize("loader", [["data.loader=shuffled"], PACKED])
def test_an_order_that_changes_nothing_is_found(
    tiny: OwnDataset, loader: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    technique("planted")(Planted)
    cfg = compose([*tiny_overrides(tiny), *loader, "launch.checkpoint_seconds=1"])
    dataset = open_dataset(cfg)
    ordered = with_techniques(cfg, Planted())
    assert failed_proofs(ordered, dataset=dataset) == [] and scored_config(ordered).tech == {}
    drawn = make_loader(cfg, dataset)

    def of_the_loader(units: Units) -> np.ndarray:
        if loader == PACKED:
            return np.random.default_rng([*units.seed[:1], units.number, *units.seed[1:]]).permutation(
                units.lengths.size
            )
        return drawn.order.blocks.astype(np.int64)  # type: ignore[union-attr]

    monkeypatch.setattr(Planted, "data_order", lambda *_: of_the_loader)
    assert unchanged_order(ordered, dataset) == ["planted changed no batch of the first 8"]


@pytest.mark.parametrize(
    "overrides",
    [
        ["data.loader=shuffled", "tech=[by_loss]", "tech.by_loss.hardest_first=true"],
        pytest.param(["data.loader=shuffled", "tech=[shuffled_once]"], marks=pytest.mark.slow),
        pytest.param([*PACKED, "tech=[by_length]", "launch.nproc=2"], marks=pytest.mark.slow),
    ],
)
def test_ideas_run(tiny: OwnDataset, runs: Path, overrides: list[str]) -> None:
    done = golf_main(*tiny_overrides(tiny), *overrides)
    assert done.returncode == 0, done.stdout
    assert read_result(only_run(runs) / "result.json").state == OK


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["tech=[by_loss]"], "puts in order what data.loader=shuffled or packed_shuffled reads"),
        (["data.loader=coprime", "tech=[shuffled_once]"], "what data.loader=shuffled or packed_shuffled reads"),
        (["data.loader=shuffled", "tech=[by_loss,shuffled_once]"], "both put the training text in order"),
        (["data.loader=shuffled", "tech=[by_length]"], "set data.loader=packed_shuffled"),
    ],
)
def test_orders_that_cannot_be_are_one_sentence(tiny: OwnDataset, overrides: list[str], sentence: str) -> None:
    assert sentence in refusal(*tiny_overrides(tiny), *overrides)
