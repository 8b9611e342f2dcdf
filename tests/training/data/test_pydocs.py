"""The embedded corpus: the same bytes everywhere, split by document."""

from pathlib import Path

import numpy as np
import pytest

from golf.errors import GolfError
from golf.training.data import pydocs
from golf.training.data.dataset import open_dataset
from golf.training.data.shards import open_shard
from tests.support import compose


@pytest.mark.slow
def test_default_data_builds_to_the_pinned_fingerprint(tmp_path: Path) -> None:
    """Nothing of a build before is used: what the configuration pins has to come out of this machine's packages."""
    cfg = compose(
        ["scale=laptop", f"data.path={tmp_path}/shards", f"data.tokenizer_path={tmp_path}/pydocs.model", "data=pydocs"]
    )
    assert cfg.data.fingerprint is not None
    dataset = open_dataset(cfg)
    assert dataset.fingerprint == cfg.data.fingerprint
    tokens = sum(shard.size for shard in dataset.train)
    assert 4_000_000 < tokens < 5_000_000
    targets = dataset.validation
    bytes_per_token = dataset.tables.count(targets[:-1], targets[1:]) / (targets.size - 1)
    assert 1.9 < bytes_per_token < 2.4
    val = open_shard(tmp_path / "shards/pydocs_val_000000.bin")
    assert np.array_equal(val[: targets.size], targets) and val.size >= 131_072


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


def test_other_versions_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(pydocs.VERSIONS, "sympy", "0.0.1")
    with pytest.raises(GolfError, match=r"made from sympy 0\.0\.1, but .* is installed"):
        pydocs.build(tmp_path / "shards", tmp_path / "t.model", 1024)
    assert list(tmp_path.iterdir()) == []
