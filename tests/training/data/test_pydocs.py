"""The embedded corpus: the same bytes everywhere, split by document."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from golf.errors import GolfError
from golf.training.data import pydocs
from golf.training.data.dataset import open_dataset
from golf.training.data.documents import BOS_ID
from golf.training.data.shards import open_shard
from tests.support import compose, make_text


@pytest.fixture(scope="module")
def modules() -> list[tuple[str, list[str]]]:
    """The text of the installed packages, which takes most of a build."""
    return list(pydocs._modules())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "train_millions", "bytes_per_token"),
    [
        ("pydocs", 4.46, 2.15),
        ("pydocs_sp4096", 3.44, 2.78),
        ("pydocs_sp8192", 3.22, 2.97),
        ("pydocs_sp1024_caseops", 4.64, 2.06),
        ("pydocs_sp8192_caseops", 3.51, 2.70),
        ("pydocs_bytes", 9.45, 1.00),
    ],
)
def test_embedded_data_builds_to_the_pinned_fingerprint(
    name: str,
    train_millions: float,
    bytes_per_token: float,
    tmp_path: Path,
    modules: list[tuple[str, list[str]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing of a build before is used: what the configuration pins has to come out of this machine's packages."""
    monkeypatch.setattr(pydocs, "_modules", lambda: iter(modules))
    tokenizer_path = None if name == "pydocs_bytes" else tmp_path / "pydocs.model"
    cfg = compose(
        ["scale=laptop", f"data.path={tmp_path}/shards", f"data.tokenizer_path={tokenizer_path or ''}", f"data={name}"]
    )
    assert cfg.data.fingerprint is not None
    operators = cfg.data.built_from == "pydocs_caseops"
    pydocs.build(tmp_path / "shards", tokenizer_path, cfg.data.vocab_size, with_operators=operators)
    dataset = open_dataset(cfg)
    assert dataset.fingerprint == cfg.data.fingerprint
    tokens = sum(shard.size for shard in dataset.train)
    assert round(tokens / 1e6, 2) == train_millions, "as docs/data.md says"
    targets = dataset.validation
    assert dataset.target_bytes.mean() == pytest.approx(bytes_per_token, abs=0.005)
    val = open_shard(tmp_path / "shards/pydocs_val_000000.bin")
    assert np.array_equal(val[: targets.size], targets) and val.size >= 131_072


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize("key", ["path", "tokenizer_path"])
def test_a_path_of_the_users_is_never_filled_with_the_embedded_corpus(key: str, exists: bool, tmp_path: Path) -> None:
    place = tmp_path / "mine"
    if exists:
        place.mkdir()
    cfg = compose(["scale=laptop", "data=pydocs", f"data.{key}={place}"])
    cfg.data.path = str(place) if key == "path" else cfg.data.path
    with pytest.raises(GolfError) as refused:
        open_dataset(cfg)
    assert f"data.{key}={place} " in str(refused.value) or "holds no train shards" in str(refused.value)
    assert list(tmp_path.rglob("*")) == ([place] if exists else [])


def test_prose_is_docstrings_and_comments_in_order() -> None:
    source = '''"""Module.

    Indented."""
#: First line
# second line
x = """
# not a comment
"""
def f():
    """Function\ttext."""
    return f"""
# not one either {x}
"""  # trailing comments are too short to be prose
# about g
def g(): pass
'''
    found = [(0, "Module.\n\nIndented."), (0, "First line\nsecond line"), (0, "Function        text."), (1, "about g")]
    assert list(pydocs._prose(source)) == found


def test_one_module_in_sixteen_is_validation_text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By the last byte of its name's digest: the share of a module does not depend on the other modules."""
    modules = [(f"package/{i}.py", [make_text(2, i)]) for i in range(150)]
    monkeypatch.setattr(pydocs, "_modules", lambda: iter(modules))
    pydocs.build(tmp_path / "shards", tmp_path / "t.model", 320)
    counts = {
        split: (open_shard(tmp_path / f"shards/pydocs_{split}_000000.bin") == BOS_ID).sum()
        for split in ("train", "val")
    }
    expected = sum(hashlib.sha256(name.encode()).digest()[-1] % 16 == 0 for name, _ in modules)
    assert counts == {"train": 150 - expected, "val": expected}


def test_the_first_text_is_that_of_the_first_package() -> None:
    assert next(name for name, documents in pydocs._modules() if documents).startswith("mpmath/")


def test_other_versions_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(pydocs.VERSIONS, "sympy", "0.0.1")
    with pytest.raises(GolfError, match=r"made from sympy 0\.0\.1, but .* is installed"):
        pydocs.build(tmp_path / "shards", tmp_path / "t.model", 1024)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setitem(pydocs.VERSIONS, "sympy", "1.14.0")
    monkeypatch.setitem(pydocs.VERSIONS, "no-such-package-of-golf", "1.0")
    with pytest.raises(GolfError, match=r"made from no-such-package-of-golf 1\.0, but none is installed"):
        pydocs.build(tmp_path / "shards", tmp_path / "t.model", 1024)
