"""The entropy coder: exact, the same bits everywhere, and close to what the weights hold."""

import hashlib
import math
import os
import subprocess
import sys

import numpy as np
import pytest

from golf.artifact.codec import context, context_kernel
from golf.artifact.codec.context import CodeMatrix, encode_matrices
from golf.artifact.codec.context_tables import TABLES
from tests.support import ROOT


def matrix(codes: np.ndarray, scales: list[int] | np.ndarray = (), role: str = "role") -> CodeMatrix:  # type: ignore[assignment]
    return CodeMatrix(role, codes.astype(np.int8), np.array(scales, np.int64))


def gaussian(rows: int, columns: int, sigma: float, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, sigma, (rows, columns)).round().clip(-127, 127)


def entropy_bytes(codes: np.ndarray) -> float:
    counts = np.unique(codes, return_counts=True)[1]
    return float(-(counts * np.log2(counts / counts.sum())).sum() / 8)


def test_tables_are_what_they_say() -> None:
    x = (np.arange(4096) - 2048) / 256
    assert np.allclose(TABLES.logistic / 65536, 1 / (1 + np.exp(-x)), atol=5e-4)
    assert np.allclose(
        TABLES.logit[64:-64] / 256, np.log((p := (np.arange(4096) + 0.5) / 4096) / (1 - p))[64:-64], atol=2e-3
    )
    normal = [0.5 * (1 + math.erf((i - 2048) / 256 / math.sqrt(2))) for i in range(4097)]
    assert np.allclose(TABLES.normal / (1 << 18), normal, atol=1e-5) and (np.diff(TABLES.normal) >= 0).all()
    assert np.allclose(TABLES.inverse_width / 65536, 2 ** (-(np.arange(960) - 256) / 64), atol=1e-5)


def test_levels_are_logarithms() -> None:
    for energy in [1, 2, 3, 255, 256, 257, 10**6, 2**31 - 1, 2**32, 2**40 + 5, 2**55]:
        assert context_kernel.level_of(TABLES.octaves, energy) == pytest.approx(32 * math.log2(energy), abs=0.8)


@pytest.mark.slow
def test_the_stream_is_the_same_on_every_machine() -> None:
    """Pinned bytes: a change here is a change of the format, which needs a new version."""
    numbers = np.arange(40 * 17, dtype=np.int64)
    codes = ((numbers * 2654435761 >> 7) % 13 + (numbers * 40503 >> 5) % 11 - 11).reshape(20, 34)
    tall = np.repeat(codes[:, :8], 3, axis=0) + codes[:1, :8]
    assert context._settings(matrix(codes))[3] == 0 and context._settings(matrix(tall))[3] == 1
    stream = encode_matrices(
        [matrix(codes, np.arange(20) * 37 % 300 + 9000), matrix(tall, np.arange(60) % 7 + 9000, "tall")]
    )
    assert hashlib.sha256(stream).hexdigest()[:16] == "d6483eb9933b237c"


@pytest.mark.parametrize(("sigma", "overhead"), [(2.4, 1.004), (6.3, 1.003), (0.4, 1.02)])
def test_independent_gaussian_codes_cost_their_entropy(sigma: float, overhead: float) -> None:
    codes = gaussian(512, 256, sigma)
    assert len(encode_matrices([matrix(codes)])) < overhead * entropy_bytes(codes)


def test_unequal_columns_and_rows_cost_less_than_the_order_0_entropy() -> None:
    generator = np.random.default_rng(1)
    widths = 4 * np.exp(generator.normal(0, 0.5, 256) + generator.normal(0, 0.3, (512, 1)))
    codes = (generator.normal(0, 1, (512, 256)) * widths).round().clip(-127, 127)
    with_widths_known = np.log2(widths * math.sqrt(2 * math.pi * math.e)).mean()
    bits = 8 * len(encode_matrices([matrix(codes)])) / codes.size
    assert bits < with_widths_known + 0.06 < 8 * entropy_bytes(codes) / codes.size - 0.1


def test_columns_that_move_together_are_predicted() -> None:
    generator = np.random.default_rng(2)
    codes = (
        generator.normal(0, 8, (600, 3)) @ generator.normal(0, 1, (3, 32)) + generator.normal(0, 2, (600, 32))
    ).round()
    codes = codes.clip(-127, 127)
    assert context._settings(matrix(codes))[3] == 1
    assert context._settings(matrix(gaussian(600, 32, 8)))[3] == 0
    assert len(encode_matrices([matrix(codes)])) < 0.7 * entropy_bytes(codes)


def test_equal_scales_are_nearly_free_and_others_cost_what_they_vary() -> None:
    codes = np.zeros((2000, 1))
    assert len(encode_matrices([matrix(codes, np.full(2000, 9000))])) < 80
    varied = np.random.default_rng(3).normal(9000, 30, 2000).round()
    assert 8 * len(encode_matrices([matrix(codes, varied)])) / 2000 < math.log2(30 * 4.13) + 0.5


def test_a_buffer_that_is_too_small_is_made_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    matrices = [matrix(gaussian(50, 20, 100, seed), np.arange(50) * 997 % 60_000) for seed in range(3)]
    expected = encode_matrices(matrices)
    monkeypatch.setattr(context, "SPARE_BYTES", -2150)
    assert encode_matrices(matrices) == expected


def test_more_roles_than_there_are_memories() -> None:
    many = [matrix(gaussian(4, 6, 3, i), [i], role=str(i)) for i in range(context.MAX_ROLES + 5)]
    assert len(encode_matrices(many)) < 5000


@pytest.mark.slow
def test_the_coder_runs_where_nothing_can_be_cached() -> None:
    """A package folder and a home that cannot be written: code is compiled anew, by the same options.

    Rehearsals compare the bytes: an exported script is no file that numba could cache code beside.
    """
    code = (
        "import golf.artifact.codec.context_kernel as k\n"
        "print(k.level_of(k.np.arange(256), 1 << 20), type(k.level_of._cache).__name__)\n"
    )
    nowhere = {
        "NUMBA_CACHE_LOCATOR_CLASSES": "UserWideCacheLocator",
        "HOME": "/dev/null",
        "XDG_CACHE_HOME": "/dev/null",
    }
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **nowhere}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=900)
    expected = context_kernel.level_of(np.arange(256), 1 << 20)
    assert done.stdout.split() == [str(expected), "NullCache"], done.stderr
    assert type(context_kernel.level_of._cache).__name__ == "FunctionCache"
