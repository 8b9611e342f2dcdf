"""Golf's subprocess of a comparison: `python -m bench.golf_process TASK SEQUENCES CONFIG` works step by step."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import torch

from bench.public import ENDLESS, pause
from bench.scoring import score_ways
from bench.step import run_loop
from golf.settings.config import Config, from_dict
from golf.settings.hardware import cpu_cores
from golf.system import tune_allocator
from golf.training.data.dataset import Dataset, open_dataset


def main() -> None:
    task, sequences, config = sys.argv[1:]
    cfg = from_dict(Config, json.loads(Path(config).read_text(encoding="utf-8")))
    if cfg.launch.device == "cpu":
        tune_allocator()
    torch.set_num_threads(cfg.launch.threads or cpu_cores())
    device, dataset = torch.device(cfg.launch.device), open_dataset(cfg)
    if task == "sliding":
        slide(cfg, first_sequences(dataset, int(sequences), cfg.data.train_seq_len), device)
    else:
        run_loop(cfg, dataset, device, ENDLESS, after_step=pause)


def first_sequences(dataset: Dataset, sequences: int, seq_len: int) -> Dataset:
    """Return `dataset` with the first `sequences` sequences of its validation split, which both subprocesses score."""
    return dataclasses.replace(dataset, validation=dataset.validation[: sequences * seq_len + 1])


def slide(cfg: Config, dataset: Dataset, device: torch.device) -> None:
    """Take the sliding score again and again, one score a step."""
    score = score_ways(cfg, dataset, device)["sliding"]
    while True:
        pause()
        score()


if __name__ == "__main__":
    main()
