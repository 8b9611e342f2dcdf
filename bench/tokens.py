"""Random tokens for benchmarks: the speed of a step or a score does not depend on which tokens it reads."""

from __future__ import annotations

import numpy as np

from golf.settings.config import Config, eval_seq_len
from golf.training.data.dataset import Dataset

TRAIN_STEPS = 4  # length of the training shard in steps; it is read over and over


def random_dataset(cfg: Config, sequences: int = 1) -> Dataset:
    """Return a shard of training tokens and `sequences` sequences to score; every token stands for one byte."""
    generator, size = np.random.default_rng(0), cfg.model.vocab_size
    train = generator.integers(0, size, TRAIN_STEPS * cfg.data.train_batch_tokens + 1).astype(np.uint16)
    validation = generator.integers(0, size, sequences * eval_seq_len(cfg) + 1).astype(np.uint16)
    return Dataset([], [train], validation, np.ones(validation.size - 1, np.int16), "")
