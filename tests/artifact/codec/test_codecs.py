"""Byte codecs and what they need installed, told before a run begins."""

import json
from pathlib import Path

import pytest

from golf.artifact.codec import codecs
from golf.artifact.codec.codecs import CODEC_IDS, codec_version, compress, decompress, require_codec
from golf.artifact.container import load
from golf.errors import GolfError
from golf.settings.consistency import CODEC_LEVELS
from golf.training.data.own_text import OwnDataset
from tests.support import golf_main, tiny_overrides


@pytest.mark.parametrize("codec", CODEC_LEVELS)
def test_codecs_never_give_more_than_asked_for(codec: str) -> None:
    packed = compress(b"a" * 1000, codec, 9)
    assert decompress(packed, codec, 1000) == b"a" * 1000
    for size in (0, 999, 1001):
        with pytest.raises(ValueError):
            decompress(packed, codec, size)
    for damaged in (packed[:-3], packed + b"more", b"", b"\0" * 20):
        with pytest.raises(ValueError):
            decompress(damaged, codec, 1000)


def test_codecs_of_the_configuration_and_of_the_file_are_the_same() -> None:
    assert set(CODEC_IDS) == {*CODEC_LEVELS, "context"}
    assert all(codec in codec_version(codec) for codec in CODEC_IDS)
    for codec in CODEC_IDS:
        require_codec(codec)


def test_a_missing_package_is_told_before_training(
    monkeypatch: pytest.MonkeyPatch, runs: Path, tiny: OwnDataset
) -> None:
    monkeypatch.setitem(codecs.NEEDS_PACKAGE, "brotli", "no_such_package_here")
    done = golf_main(*tiny_overrides(tiny), "quant.codec=brotli")
    assert done.returncode == 2 and not runs.exists()
    assert "codec brotli needs the package no_such_package_here" in done.stderr and "pip install" in done.stderr
    with pytest.raises(GolfError, match="pip install"):
        compress(b"", "brotli", 9)


def test_a_run_with_the_entropy_coder_ends_in_a_smaller_file_of_equal_score(runs: Path, tiny: OwnDataset) -> None:
    sizes, scores = [], []
    for number, quant in enumerate(["int6_mixed", "int6_context"]):
        done = golf_main(*tiny_overrides(tiny), f"quant={quant}", "schedule.iterations=2", f"name=run{number}")
        assert done.returncode == 0, done.stderr
        (folder,) = runs.glob(f"run{number}*/seed*")
        result = json.loads((folder / "result.json").read_text())
        assert load(folder / "artifact.golf").coded
        sizes.append(result["artifact_bytes"])
        scores.append(result["post_quant"]["val_loss"])
    assert sizes[1] < 0.99 * sizes[0] and scores[0] == scores[1]
