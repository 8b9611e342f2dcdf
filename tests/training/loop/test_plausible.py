"""Scores that are marked as too low for their text, and texts for which a low score is no wonder."""

import numpy as np
import pytest

from golf.training.data.dataset import Dataset
from golf.training.loop.plausible import implausible_score

TOKENS = 20_000


def dataset(validation: np.ndarray, train: np.ndarray) -> Dataset:
    validation, train = validation.astype(np.uint16), train.astype(np.uint16)
    return Dataset([], [train], validation, np.full(validation.size - 1, 3, np.int16), "")


def random_text(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(2, 1000, TOKENS)


@pytest.mark.parametrize(
    ("val_bpb", "validation", "train", "is_marked"),
    [
        (0.0196, random_text(0), random_text(1), True),
        (0.6, random_text(0), random_text(1), False),
        # Text that repeats itself, and text that the training has seen.
        (0.0196, np.resize(random_text(0)[:50], TOKENS), random_text(1), False),
        (0.0196, random_text(0), random_text(0), False),
        (float("nan"), random_text(0), random_text(1), False),
    ],
)
def test_a_score_far_below_its_text_is_marked(
    val_bpb: float, validation: np.ndarray, train: np.ndarray, is_marked: bool
) -> None:
    said = implausible_score(val_bpb, dataset(validation, train))
    assert bool(said) == is_marked, said
    assert not said or "0.0196 bits per byte is not plausible for this text, for which LZMA needs 3." in said
