"""Byte codecs and what they need installed, told before a run begins."""

from pathlib import Path

import pytest
import torch

from golf.artifact.codec import codecs
from golf.artifact.codec.codecs import CODEC_IDS, codec_version, compress, decompress, require_codec
from golf.artifact.container import load, pack, unpack
from golf.errors import GolfError
from golf.lab.corpora.own_text import OwnDataset
from golf.settings.config import QuantConfig
from golf.settings.consistency import CODEC_LEVELS
from tests.support import compose, golf_main, only_run, tiny_overrides


@pytest.mark.parametrize("codec", CODEC_LEVELS)
def test_codecs_never_give_more_than_asked_for(codec: str) -> None:
    quant = QuantConfig(codec=codec, codec_level=9)
    packed = compress(b"a" * 1000, quant)
    assert decompress(packed, quant, 1000) == b"a" * 1000
    for size in (0, 999, 1001):
        with pytest.raises(ValueError):
            decompress(packed, quant, size)
    for damaged in (packed[:-3], packed + b"more", b"", b"\0" * 20):
        with pytest.raises(ValueError):
            decompress(damaged, quant, 1000)


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
        compress(b"", QuantConfig(codec="brotli"))


@pytest.mark.slow
def test_a_run_with_the_entropy_coder_ends_in_a_smaller_file_of_equal_weights(runs: Path, tiny: OwnDataset) -> None:
    overrides = [*tiny_overrides(tiny), "schedule.iterations=2"]
    done = golf_main(*overrides, "quant=int6_context")
    assert done.returncode == 0, done.stderr
    path, cfg = only_run(runs) / "artifact.golf", compose([*overrides, "quant=int6_mixed"])
    artifact = load(path)
    other = pack(artifact.coded, artifact.model, cfg.quant, cfg.tech)
    assert path.stat().st_size < 0.99 * len(other)
    again = unpack(other).state_dict()
    for key, weights in artifact.state_dict().items():
        torch.testing.assert_close(again.pop(key), weights, rtol=0, atol=0)
    assert again == {}
