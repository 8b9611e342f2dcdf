"""Scoring weights under a configuration: one model object, one arithmetic, whatever weights are put in."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from golf.config import Config, eval_seq_len
from golf.data.dataset import Dataset, open_dataset
from golf.model.build import build_model
from golf.model.compiling import compile_for_scoring
from golf.ranks import Ranks
from golf.scoring.bits import Score
from golf.scoring.standard import score_standard


class Scorer:
    """Callable that scores state dicts on the validation split in `eval.dtype`, shared out over the ranks."""

    def __init__(self, cfg: Config, dataset: Dataset, ranks: Ranks):
        self.cfg, self.dataset, self.ranks = cfg, dataset, ranks
        scored = dataclasses.replace(cfg.model, compute_dtype=cfg.eval.dtype)
        self.model = build_model(dataclasses.replace(cfg, model=scored)).to(ranks.device).eval()
        self.token_losses = compile_for_scoring(self.model, cfg.launch.compile)

    def __call__(self, state_dict: Mapping[str, Tensor], active: tuple[str, ...] | None = None) -> Score:
        """Score `state_dict` with the late switches `active` on; without them as at the end of training."""
        self.model.load_state_dict(state_dict)
        seq_len = eval_seq_len(self.cfg)
        return score_standard(
            lambda inputs, targets: self.token_losses(inputs, targets, active),
            self.dataset.validation,
            self.dataset.tables,
            seq_len=seq_len,
            batch_seqs=self.cfg.eval.val_batch_tokens // self.cfg.data.micro_batches // seq_len,
            ranks=self.ranks,
        )


def score(model: nn.Module, cfg: Config, dataset: Dataset | None = None) -> Score:
    """Score a model's weights on the validation data of `cfg` (opened if not given), on `cfg.launch.device`."""
    ranks = Ranks(device=torch.device(cfg.launch.device))
    return Scorer(cfg, dataset or open_dataset(cfg), ranks)(model.state_dict())
