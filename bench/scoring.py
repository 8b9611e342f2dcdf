"""Scored tokens a second, for sequences that do not overlap and for a sliding window."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch

from bench.rounds import alternate, paired_ratio
from bench.table import Row
from bench.tokens import random_dataset
from golf.bits import Score
from golf.lab.plan.flops import flops_per_scored_token
from golf.settings.config import Config, eval_seq_len
from golf.training.data.dataset import Dataset
from golf.training.model.build import build_model, shapeless_model
from golf.training.ranks import Ranks
from golf.training.scoring.scorer import Scorer

STRIDE = 64  # tokens, where the configuration has no sliding window


def scoring_rows(cfg: Config, device: torch.device, rounds: int, sequences: int) -> list[Row]:
    """Return rows of the flat and the sliding score in alternating rounds, with random weights and tokens."""
    cfg = with_stride(cfg)
    seq_len, stride = eval_seq_len(cfg), cfg.eval.stride
    ways = score_ways(cfg, random_dataset(cfg, sequences), device)
    seconds = alternate(ways, rounds, device, warm_up=1)
    model, rows = shapeless_model(cfg), []
    for name, step in (("flat", 0), ("sliding", stride)):
        work = flops_per_scored_token(cfg, model, step) * sequences * seq_len
        what = f"{cfg.name} {name} compile={cfg.launch.compile} {cfg.eval.dtype}, T={seq_len}"
        rows.append(Row("score", what, seconds[name], sequences * seq_len, work))
    ratio = paired_ratio(seconds["sliding"], seconds["flat"])
    note = f"stride {stride}: {ratio:.2f} times flat, of T / stride = {seq_len / stride:.0f}"
    rows[1] = dataclasses.replace(rows[1], note=note)
    return rows


def with_stride(cfg: Config) -> Config:
    """Return `cfg` with a sliding window; if it has none, of STRIDE tokens, or fewer for short sequences."""
    stride = cfg.eval.stride or min(STRIDE, eval_seq_len(cfg) // 2)
    return dataclasses.replace(cfg, eval=dataclasses.replace(cfg.eval, stride=stride))


def score_ways(cfg: Config, dataset: Dataset, device: torch.device) -> dict[str, Callable[[], Score]]:
    """Return the flat and the sliding score of `dataset` by name, as functions that use a model of random weights."""
    scorer = Scorer(cfg, dataset, Ranks(device=device))
    torch.manual_seed(cfg.seed)
    weights = build_model(cfg).state_dict()
    return {"flat": lambda: scorer(weights), "sliding": lambda: scorer.sliding(weights)}
