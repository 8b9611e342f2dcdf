"""Which loader a configuration gets, the order of shards, and runs with each from the command line."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from golf.errors import GolfError
from golf.lab.corpora.own_text import OwnDataset
from golf.run.result import read_result
from golf.settings.config import Config, DataConfig, from_dict, to_dict
from golf.training.data.batches import make_loader
from golf.training.data.dataset import open_dataset
from golf.training.data.loader import listed_first
from golf.training.data.shards import open_shard, write_shard
from golf.training.loop.warmup import synthetic_batch
from golf.training.ranks import Ranks
from tests.support import compose, golf_main, metrics, only_run, refusal, tiny_overrides

LOADERS = ("sequential", "coprime", "shuffled")


@pytest.fixture
def parts(tiny: OwnDataset, tmp_path: Path) -> Path:
    """The tiny data set with its training tokens in four shards, the last one shorter than a window."""
    return split(tiny, tmp_path / "parts", (0, 1, 2, 3))


def split(tiny: OwnDataset, folder: Path, order: tuple[int, ...]) -> Path:
    folder.mkdir()
    tokens = open_shard(tiny.folder / "tiny_train_000000.bin")
    shards = np.split(tokens, [1000, 1600, tokens.size - 20])
    for number, part in enumerate(order):
        write_shard(folder / f"tiny_train_{number:06d}.bin", shards[part])
    (folder / "tiny_val_000000.bin").symlink_to(tiny.folder / "tiny_val_000000.bin")
    return folder


def losses(folder: Path) -> list[float]:
    return [e["train_loss"] for e in metrics(folder, "train")]


@pytest.mark.parametrize("loader", LOADERS)
def test_a_step_takes_the_same_micro_batches_whatever_the_ranks(loader: str, tiny: OwnDataset, parts: Path) -> None:
    cfg = compose([*tiny_overrides(tiny), f"data.path={parts}", f"data.loader={loader}", "data.loader_seed=5"])
    dataset = open_dataset(cfg)
    steps = {}
    for nproc in (1, 2, 4):
        ranks = [make_loader(cfg, dataset, Ranks(r, nproc)) for r in range(nproc)]
        steps[nproc] = [rank.next_batch() for _ in range(12 // nproc) for rank in ranks]
    for one, *others in zip(steps[1], steps[2], steps[4], strict=True):
        for other in others:
            assert torch.equal(one[0], other[0]) and torch.equal(one[1], other[1])
    assert steps[1][0][0].shape == (4, 32)


@pytest.mark.parametrize("loader", [*LOADERS, "packed", "packed_shuffled"])
@pytest.mark.parametrize("sequences", [1, 4])
def test_warm_up_batches_have_the_strides_of_a_loader(loader: str, sequences: int, tiny: OwnDataset) -> None:
    """A compiled step is specialised for them: others would be compiled while the clock runs."""
    documents = ["model.within_documents=true", "eval.documents=true"] if loader.startswith("packed") else []
    shape = ["data.train_seq_len=64", f"data.train_batch_tokens={64 * sequences}", "data.micro_batches=1"]
    cfg = compose([*tiny_overrides(tiny), *shape, *documents, f"data.loader={loader}"])
    loaded = make_loader(cfg, open_dataset(cfg)).next_batch()
    for ours, theirs in zip(synthetic_batch(cfg), loaded, strict=True):
        assert (ours.shape, ours.stride(), ours.dtype) == (theirs.shape, theirs.stride(), theirs.dtype)


@pytest.mark.parametrize("loader", ["coprime", "shuffled"])
def test_the_loaders_seed_is_its_own(loader: str, tiny: OwnDataset, parts: Path, tmp_path: Path) -> None:
    """Neither the run's seed nor the place of the data changes the order; data.loader_seed does."""
    elsewhere = split(tiny, tmp_path / "elsewhere", (0, 1, 2, 3))

    def first_inputs(*overrides: str) -> torch.Tensor:
        cfg = compose([*tiny_overrides(tiny), f"data.loader={loader}", f"data.path={parts}", *overrides])
        return make_loader(cfg, open_dataset(cfg)).next_batch()[0]

    found = first_inputs()
    assert torch.equal(found, first_inputs("seed=9", f"data.path={elsewhere}"))
    assert not torch.equal(found, first_inputs("data.loader_seed=9"))


@pytest.mark.slow
@pytest.mark.parametrize("loader", LOADERS)
def test_runs_from_the_command_line(loader: str, tiny: OwnDataset, parts: Path, runs: Path) -> None:
    done = golf_main(*tiny_overrides(tiny), f"data.path={parts}", f"data.loader={loader}")
    assert done.returncode == 0, done.stderr
    folder = only_run(runs)
    result = read_result(folder / "result.json")
    assert result.state == "ok" and result.steps == 6 and result.tokens_seen == 6 * 512
    assert json.loads((folder / "config.json").read_text())["data"]["loader"] == loader


@pytest.mark.slow
def test_loaders_train_on_different_text(tiny: OwnDataset, parts: Path, runs: Path) -> None:
    done = golf_main("-m", *tiny_overrides(tiny), f"data.path={parts}", f"data.loader={','.join(LOADERS)}")
    assert done.returncode == 0, done.stderr
    found = [losses(p) for p in runs.glob("*/seed*")]
    assert len(found) == 3 and all(a[0] != b[0] for a, b in itertools.combinations(found, 2))


@pytest.mark.slow
def test_two_ranks_train_as_one_does_with_windows(tiny: OwnDataset, parts: Path, runs: Path) -> None:
    for nproc in (1, 2):
        done = golf_main(*tiny_overrides(tiny), f"data.path={parts}", "data.loader=coprime", f"launch.nproc={nproc}")
        assert done.returncode == 0, done.stderr
    one, two = (np.array(losses(p)) for p in sorted(runs.glob("*/seed*")))
    assert len(one) == 6 and np.max(np.abs(one - two)) < 1e-3


@pytest.mark.slow
def test_listed_shards_come_first(tiny: OwnDataset, parts: Path, runs: Path, tmp_path: Path) -> None:
    """A run that lists shards 2 and 0 is the run on files that lie in this order, and not the plain one."""
    moved = split(tiny, tmp_path / "moved", (2, 0, 1, 3))
    for settings in ([f"data.path={parts}", "data.shard_order=[2,0]"], [f"data.path={moved}"], [f"data.path={parts}"]):
        done = golf_main(*tiny_overrides(tiny), *settings)
        assert done.returncode == 0, done.stderr
    found = {}
    for folder in runs.glob("*/seed*"):
        data = json.loads((folder / "config.json").read_text())["data"]
        found[Path(data["path"]).name, tuple(data["shard_order"])] = losses(folder)
    assert found["parts", (2, 0)] == found["moved", ()] != found["parts", ()]


def test_order_of_shards() -> None:
    shards = [np.full(3, i, dtype=np.uint16) for i in range(4)]
    for listed, expected in (([], [0, 1, 2, 3]), ([0], [0, 1, 2, 3]), ([3, 1], [3, 1, 0, 2]), ([2, 3, 1, 0],) * 2):
        assert [int(s[0]) for s in listed_first(shards, listed)] == expected


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["data.shard_order=[1,4]"], "data.shard_order lists shard 4, but the 4 training shards are numbered 0 to 3"),
        (["data.shard_order=[-1]"], "data.shard_order lists shard -1, but"),
        (["data.shard_order=[2,0,2]"], "data.shard_order lists shard 2 twice"),
        (["data.shard_order=2"], "data.shard_order takes a list: write data.shard_order=[…]"),
        (["data.shard_order=[a]"], "data.shard_order[0] takes an integer, not 'a'"),
        (["data.shard_order=[1]", "data.loader=coprime"], "data.loader=coprime mixes all shards, so data.shard_order"),
        (["data.shard_order=[1]", "data.loader=shuffled"], "data.loader=shuffled mixes all shards"),
        (["data.loader=random"], "choose one of sequential, coprime, shuffled"),
        (["data.loader_seed=-1"], "data.loader_seed=-1 has to be at least 0"),
        (
            ["data.loader=coprime", "data.train_seq_len=65536", "data.train_batch_tokens=262144", "eval.seq_len=32"],
            "None of the 4 training shards holds a sequence of 65536 tokens",
        ),
    ],
)
def test_mistakes_end_in_one_sentence(
    overrides: list[str], sentence: str, tiny: OwnDataset, parts: Path, runs: Path
) -> None:
    found = refusal(*tiny_overrides(tiny), f"data.path={parts}", *overrides)
    assert sentence in found and "\n" not in found
    assert not runs.exists()


def test_lists_survive_the_configurations_file() -> None:
    cfg = Config()
    cfg.data.shard_order = [3, 1]
    assert from_dict(Config, json.loads(json.dumps(to_dict(cfg)))) == cfg
    for wrong in ([1, "a"], 1, [[1]]):
        with pytest.raises(GolfError, match=r"DataConfig\.shard_order is .* not of type list\[int\]"):
            from_dict(DataConfig, {"shard_order": wrong})
