"""Scored tokens per second with a sliding window against sequences that do not overlap.

`python scripts/bench_scoring.py [overrides]`, for example `scale=laptop model=4l eval.stride=64`. The two take
turns, so that a machine whose speed drifts slows them alike. A window scores `eval.stride` of the T tokens it
reads, so flat scoring is about T / stride times as fast; the last figure says how close to that. Tokens are random.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import torch

from golf.composition import compose
from golf.config import Config, eval_seq_len
from golf.data.dataset import Dataset
from golf.data.tokenizer import ByteTables
from golf.launch.process import tune_allocator
from golf.model.build import build_model
from golf.ranks import Ranks
from golf.scoring.bits import Score
from golf.scoring.scorer import Scorer


def random_dataset(cfg: Config, targets: int) -> Dataset:
    """Validation tokens out of nothing, one byte each."""
    size = cfg.model.vocab_size
    tokens = np.random.default_rng(0).integers(0, size, targets + 1).astype(np.uint16)
    tables = ByteTables(np.ones(size, np.int16), np.zeros(size, bool), np.zeros(size, bool))
    return Dataset([], [], tokens, tables, "")


def measure(ways: dict[str, Callable[[], Score]], rounds: int) -> dict[str, list[float]]:
    """Tokens per second of every way: each once a round, there and back, after one round that is not counted."""
    speeds: dict[str, list[float]] = {name: [] for name in ways}
    for round_number in range(rounds + 1):
        order = list(ways.items())
        for name, score in order if round_number % 2 else reversed(order):
            start = time.perf_counter()
            tokens = score().tokens
            if round_number:
                speeds[name].append(tokens / (time.perf_counter() - start))
    return speeds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", help="as for golf/train.py")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sequences", type=int, default=128, help="of T tokens, scored each time (default: 128)")
    arguments = parser.parse_intermixed_args()
    tune_allocator()
    cfg = compose(["eval.stride=64", *arguments.overrides])
    seq_len, stride = eval_seq_len(cfg), cfg.eval.stride
    ranks = Ranks(device=torch.device(cfg.launch.device))
    scorer = Scorer(cfg, random_dataset(cfg, arguments.sequences * seq_len), ranks)
    weights = build_model(cfg).state_dict()
    speeds = measure({"flat": lambda: scorer(weights), "sliding": lambda: scorer.sliding(weights)}, arguments.rounds)
    print(
        f"{cfg.model.name} on {ranks.device}, T={seq_len}, stride={stride}, {arguments.sequences} sequences, "
        f"compile={cfg.launch.compile}, {torch.get_num_threads()} threads, torch {torch.__version__}"
    )
    for name, found in speeds.items():
        print(f"{name:8} {statistics.median(found):12,.0f} tokens/s")
    ratio = statistics.median(f / s for f, s in zip(speeds["flat"], speeds["sliding"], strict=True))
    share = ratio * stride / seq_len
    print(f"flat / sliding {ratio:.2f}, T / stride {seq_len / stride:.2f}, one over the other {share:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
