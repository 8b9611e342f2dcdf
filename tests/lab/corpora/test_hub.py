"""Downloading through the real hub client from a small server on loopback."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from golf.errors import GolfError
from golf.lab.corpora import hub as hub_module
from golf.lab.corpora.hub import Repository, _read_manifest
from golf.training.data.caseops import encode_capitals
from golf.training.data.dataset import validation_tokens
from golf.training.data.documents import train_tokenizer
from golf.training.data.shards import open_shard, write_shard
from tests.hub_server import Hub, serve
from tests.support import ROOT, compose, make_text

FOLDER = "datasets/fineweb10B_sp1024"


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """A repository with three small training shards, one validation shard and a tokenizer file."""
    root = tmp_path / "published"
    remote = root / "datasets"
    (remote / FOLDER).mkdir(parents=True)
    (remote / "tokenizers").mkdir()
    for i in range(3):
        write_shard(remote / FOLDER / f"fineweb_train_{i:06d}.bin", np.arange(1000 + i))
    write_shard(remote / FOLDER / "fineweb_val_000000.bin", np.arange(500))
    (remote / "tokenizers/fineweb_1024_bpe.model").write_bytes(b"pieces")
    stats = {"files_train": 3, "files_val": 1, "tokens_val": 500, "tokens_train": 3003}
    manifest = {
        "datasets": [{"name": "fineweb10B_sp1024", "tokenizer_name": "sp_bpe_1024", "stats": stats}],
        "tokenizers": [{"name": "sp_bpe_1024", "model_path": "tokenizers/fineweb_1024_bpe.model"}],
    }
    (remote / "manifest.json").write_text(json.dumps(manifest))
    return root


def get_data(hub: Hub, root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HF_ENDPOINT": hub.endpoint, "HF_HUB_DISABLE_TELEMETRY": "1"}
    command = [sys.executable, "-m", "golf", "data", "get", "--root", str(root), *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900)


def fetched(hub: Hub) -> list[str]:
    return [name.rpartition("/")[2] for method, name, _ in hub.requests if method == "GET" and name.endswith("bin")]


def test_fetches_what_was_asked_for_once(published: Path, tmp_path: Path) -> None:
    with serve(published) as hub:
        done = get_data(hub, tmp_path / "data", "--variant", "sp1024", "--train-shards", "2")
        assert done.returncode == 0, done.stderr
        assert "[1/3] datasets/fineweb10B_sp1024/fineweb_val_000000.bin" in done.stdout
        assert fetched(hub) == ["fineweb_val_000000.bin", "fineweb_train_000000.bin", "fineweb_train_000001.bin"]
        assert open_shard(tmp_path / "data" / FOLDER / "fineweb_train_000001.bin").size == 1001
        assert (tmp_path / "data/tokenizers/fineweb_1024_bpe.model").read_bytes() == b"pieces"
        hub.requests.clear()
        again = get_data(hub, tmp_path / "data", "--train-shards", "3")
        assert again.returncode == 0, again.stderr
        assert fetched(hub) == ["fineweb_train_000002.bin"]


def test_a_cut_off_file_is_fetched_again(published: Path, tmp_path: Path) -> None:
    with serve(published) as hub:
        assert get_data(hub, tmp_path / "data", "--train-shards", "1").returncode == 0
        target = tmp_path / "data" / FOLDER / "fineweb_train_000000.bin"
        target.write_bytes(target.read_bytes()[:-10])
        assert get_data(hub, tmp_path / "data", "--train-shards", "1").returncode == 0
        assert open_shard(target).size == 1000


@pytest.mark.slow
def test_a_broken_transfer_goes_on_where_it_stopped(published: Path, tmp_path: Path) -> None:
    big = published / "datasets" / FOLDER / "fineweb_train_000000.bin"
    write_shard(big, np.arange(12_000_000) % 60_000)
    with serve(published) as hub:
        hub.cut_after[f"datasets/{FOLDER}/fineweb_train_000000.bin"] = 21_000_000
        done = get_data(hub, tmp_path / "data", "--train-shards", "1")
        assert done.returncode == 0, done.stderr
        ranges = [r for method, name, r in hub.requests if method == "GET" and name.endswith("train_000000.bin")]
        assert len(ranges) == 2 and ranges[0] is None and ranges[1] is not None
    target = tmp_path / "data" / FOLDER / big.name
    assert hashlib.sha256(target.read_bytes()).digest() == hashlib.sha256(big.read_bytes()).digest()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--variant", "sp9"], "The published data has no fineweb10B_sp9: --variant can be sp1024."),
        (["--train-shards", "9"], "sp1024 has 3 training shards"),
    ],
)
def test_impossible_wishes_are_named(published: Path, tmp_path: Path, arguments: list[str], sentence: str) -> None:
    with serve(published) as hub:
        done = get_data(hub, tmp_path / "data", *arguments)
    assert done.returncode == 2 and sentence in done.stderr and "Traceback" not in done.stderr


def test_a_published_file_that_is_not_a_shard_is_not_taken(published: Path, tmp_path: Path) -> None:
    (published / "datasets" / FOLDER / "fineweb_train_000000.bin").write_bytes(b"x" * 3000)
    with serve(published) as hub:
        done = get_data(hub, tmp_path / "data", "--train-shards", "1")
    assert done.returncode == 2 and "not a token shard" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "data" / FOLDER / "fineweb_train_000000.bin").exists()


def test_totals_are_checked_against_the_manifest(published: Path, tmp_path: Path) -> None:
    write_shard(published / "datasets" / FOLDER / "fineweb_val_000000.bin", np.arange(400))
    with serve(published) as hub:
        done = get_data(hub, tmp_path / "data", "--train-shards", "0")
    assert done.returncode == 2 and "hold 400 tokens, but the manifest says 500" in done.stderr


def test_another_repository_with_sidecars(published: Path, tmp_path: Path) -> None:
    """CaseOps data of another repository, in a folder of its own choice, comes with its sidecars."""
    remote, folder = published / "exports/v1", "datasets/fineweb10B_caps"
    texts = [encode_capitals(make_text(20, seed).title()) for seed in range(4)]
    (remote / folder).mkdir(parents=True)
    for name in ("train", "val", "val_bytes"):
        write_shard(remote / folder / f"fineweb_{name}_000000.bin", np.arange(300))
    (remote / "tokenizers/caps").mkdir(parents=True)
    (remote / "tokenizers/caps/sp.model").write_bytes(train_tokenizer(texts, 300, with_operators=True))
    manifest = {
        "datasets": [{"name": "fineweb10B_caps", "tokenizer_name": "caps", "stats": {"tokens_val": 300}}],
        "tokenizers": [{"name": "caps", "model_path": "tokenizers/caps/sp.model"}],
    }
    (remote / "manifest.json").write_text(json.dumps(manifest))
    arguments = ["--variant", "caps", "--train-shards", "1", "--repo", "someone/caps", "--prefix", "exports/v1"]
    with serve(published) as hub:
        done = get_data(hub, tmp_path / "data", *arguments)
        assert done.returncode == 0, done.stderr
        assert fetched(hub) == ["fineweb_val_000000.bin", "fineweb_val_bytes_000000.bin", "fineweb_train_000000.bin"]
        assert "/datasets/someone/caps/resolve/" in hub.paths[0]
        other = get_data(hub, tmp_path / "data", *arguments[:4], "--repo", "other/caps", "--prefix", "exports/v1")
    assert other.returncode == 2 and "holds shards of someone/caps/exports/v1, which may be cut" in other.stderr


@pytest.mark.slow
def test_a_repository_that_is_none_is_named(published: Path, tmp_path: Path) -> None:
    with serve(published) as hub:
        done = get_data(hub, tmp_path / "data", "--repo", "a/b/c")
        assert done.returncode == 2 and "a/b/c is no repository of the hub: write --repo owner/name" in done.stderr
        done = get_data(hub, tmp_path / "data", "--prefix", "nowhere")
    assert done.returncode == 2 and "manifest.json cannot be fetched from willdepueoai" in done.stderr


@pytest.mark.slow
def test_a_server_that_hangs_up_each_time_is_one_sentence(published: Path, tmp_path: Path) -> None:
    class EachTime(dict[str, int]):
        def pop(self, name: str, default: int | None = None) -> int | None:  # type: ignore[override]
            return self.get(name, default)

    with serve(published) as hub:
        hub.cut_after = EachTime({f"datasets/{FOLDER}/fineweb_val_000000.bin": 700})
        done = get_data(hub, tmp_path / "data", "--train-shards", "1")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "fineweb_val_000000.bin cannot be fetched" in done.stderr and "goes on from here" in done.stderr
    hub.server_address = ("127.0.0.1:no-port", 0)
    done = get_data(hub, tmp_path / "elsewhere")
    assert done.returncode == 2 and "manifest.json cannot be fetched" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "manifest",
    [{"datasets": None}, {"datasets": ["a"]}, {"datasets": [{"name": "a", "stats": {"files_train": "many"}}]}, 3],
)
def test_a_manifest_of_another_kind_is_refused(manifest: object, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(GolfError, match="is not a list of data sets: choose another --repo"):
        _read_manifest(tmp_path / "manifest.json", Repository())


def test_text_as_bytes_has_no_tokenizer(published: Path, tmp_path: Path) -> None:
    remote, folder = published / "datasets", "datasets/fineweb10B_byte260"
    (remote / folder).mkdir(parents=True)
    write_shard(remote / folder / "fineweb_val_000000.bin", np.array([1, 101, 102]))
    write_shard(remote / folder / "fineweb_train_000000.bin", np.array([1, 103]))
    manifest = json.loads((remote / "manifest.json").read_text())
    manifest["datasets"].append({"name": "fineweb10B_byte260", "tokenizer_name": "bytes", "stats": {"files_train": 1}})
    manifest["tokenizers"].append({"name": "bytes", "path": "tokenizers/fineweb_pure_byte_260.json"})
    (remote / "manifest.json").write_text(json.dumps(manifest))
    with serve(published) as hub:
        done = get_data(hub, tmp_path / "data", "--variant", "byte260", "--train-shards", "1")
    assert done.returncode == 0, done.stderr
    cfg = compose(["scale=laptop", "data=fineweb_bytes", f"data.path={tmp_path / 'data' / folder}"])
    assert validation_tokens(cfg.data).tolist() == [1, 101, 102]


@pytest.mark.parametrize(
    "name",
    ["../victim", "../../victim", "/tmp/victim", "a/../../victim", "..", ".", "a/..", "a\0b", "//victim", ".hub/x"],
)
def test_no_name_of_a_manifest_leads_out_of_the_root(
    name: str, published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client of the hub may refuse such names itself; this one does not."""
    manifest = json.loads((published / "datasets/manifest.json").read_text())
    manifest["tokenizers"][0]["model_path"] = name
    (published / "datasets/manifest.json").write_text(json.dumps(manifest))
    asked: list[str] = []

    def download(source: hub_module.Repository, name: str, root: Path) -> Path:
        asked.append(name)
        given = tmp_path / "fetched"
        given.write_bytes((published / "datasets/manifest.json").read_bytes())
        return given

    monkeypatch.setattr(hub_module.Repository, "download", download)
    root = tmp_path / "inner/data"
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(GolfError, match=r"names .*, which is no file of a data set: choose another --repo"):
        hub_module.fetch_variant("sp1024", 1, root, print, hub_module.Repository())
    assert asked == ["manifest.json"]
    made = {path.name for path in {*tmp_path.rglob("*")} - {*before}}
    assert made <= {"fetched", "inner", "data", "datasets", "fineweb10B_sp1024", "origin.txt"}
