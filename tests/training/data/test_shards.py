"""The shard format, and the sentence for every file that is not one."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from golf.errors import GolfError
from golf.training.data.shards import HEADER_BYTES, find_shards, open_shard, write_shard


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.lists(st.integers(0, 65_535), max_size=300))
def test_what_is_written_is_read(tmp_path: Path, tokens: list[int]) -> None:
    write_shard(tmp_path / "s.bin", np.array(tokens))
    assert open_shard(tmp_path / "s.bin").tolist() == tokens
    assert (tmp_path / "s.bin").stat().st_size == 1024 + 2 * len(tokens)


def test_header_is_the_fields(tmp_path: Path) -> None:
    write_shard(tmp_path / "s.bin", np.array([7, 8, 9]))
    header = np.frombuffer((tmp_path / "s.bin").read_bytes()[:HEADER_BYTES], dtype="<i4")
    assert header[:3].tolist() == [20240520, 1, 3] and not header[3:].any()


def test_faulty_files_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "s.bin"
    write_shard(path, np.arange(100))
    whole = path.read_bytes()
    for content, sentence in [
        (whole[:-1], "cut off"),
        (whole + b"\0", "cut off"),
        (whole[:500], "less than a shard's header"),
        (b"PK" + whole[2:], "not a token shard"),
    ]:
        path.write_bytes(content)
        with pytest.raises(GolfError, match=sentence) as caught:
            open_shard(path)
        assert str(path) in str(caught.value)


def test_missing_folder_and_missing_files_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(GolfError, match=r"does not exist.*golf data get"):
        find_shards(tmp_path / "nowhere", "*.bin", "train")
    with pytest.raises(GolfError, match="holds no train shards"):
        find_shards(tmp_path, "*.bin", "train")
