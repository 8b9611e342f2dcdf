"""Scoring weights under a configuration: one model object, one arithmetic, whatever weights are put in."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from golf.bits import Score
from golf.settings.config import Config, eval_seq_len, ttt_recipe
from golf.training.data.dataset import Dataset, open_dataset
from golf.training.model.build import build_model, compile_for_scoring
from golf.training.ranks import Ranks
from golf.training.scoring.forward import LossesAt, compiled_losses_at
from golf.training.scoring.lora import adapted_layers
from golf.training.scoring.sliding import score_sliding
from golf.training.scoring.standard import score_standard
from golf.training.scoring.tally import Observe, Watcher
from golf.training.scoring.ttt_lora import score_ttt_lora
from golf.training.scoring.ttt_sgd import score_ttt_sgd


class Scorer:
    """Scores state dicts on the validation split in `eval.dtype`, shared out over the ranks.

    Called, it takes the standard score; `sliding` and `test_time_trained` take the others that the configuration asks
    for. All of them tell `observe`, if given, which targets got how many nats.
    """

    def __init__(self, cfg: Config, dataset: Dataset, ranks: Ranks):
        self.cfg, self.dataset, self.ranks = cfg, dataset, ranks
        scored = dataclasses.replace(cfg.model, compute_dtype=cfg.eval.dtype)
        self.model = build_model(dataclasses.replace(cfg, model=scored)).to(ranks.device).eval()
        self.token_losses = compile_for_scoring(self.model, cfg.launch.compile)
        if cfg.eval.ttt.method == "lora":
            adapted_layers(self.model)  # raises before the training rather than after it

    @functools.cached_property
    def losses_at(self) -> LossesAt:
        """Losses at some positions only, for windows that overlap."""
        return compiled_losses_at(self.model, self.cfg.launch.compile)

    def __call__(
        self,
        state_dict: Mapping[str, Tensor],
        active: tuple[str, ...] | None = None,
        *,
        observe: Observe | None = None,
    ) -> Score:
        """The standard score: sequences that do not overlap.

        `active` are the late switches that are on; without them it is scored as at the end of training.
        """
        self.model.load_state_dict(state_dict)
        seq_len = eval_seq_len(self.cfg)
        return score_standard(
            lambda inputs, targets: self.token_losses(inputs, targets, active),
            self.dataset.validation,
            self.dataset.tables,
            seq_len=seq_len,
            batch_seqs=self.cfg.eval.val_batch_tokens // self.cfg.data.micro_batches // seq_len,
            ranks=self.ranks,
            observe=observe,
        )

    def sliding(self, state_dict: Mapping[str, Tensor], *, observe: Observe | None = None) -> Score:
        """The score with windows `eval.stride` tokens apart."""
        self.model.load_state_dict(state_dict)
        return score_sliding(
            self.losses_at,
            self.dataset.validation,
            self.dataset.tables,
            seq_len=eval_seq_len(self.cfg),
            stride=self.cfg.eval.stride,
            batch_seqs=self.cfg.eval.stride_batch_seqs,
            tail=self.cfg.eval.tail,
            ranks=self.ranks,
            observe=observe,
        )

    def test_time_trained(
        self, state_dict: Mapping[str, Tensor], *, watcher: Watcher | None = None, observe: Observe | None = None
    ) -> Score:
        """The score with training on what has been scored; the model ends with the weights it began with."""
        self.model.load_state_dict(state_dict)
        cfg, validation, tables = self.cfg, self.dataset.validation, self.dataset.tables
        if cfg.eval.ttt.method == "lora":
            return score_ttt_lora(
                self.model,
                validation,
                tables,
                ttt=cfg.eval.ttt,
                recipe=ttt_recipe(cfg),
                seed=cfg.seed,
                ranks=self.ranks,
                observe=observe,
                watcher=watcher,
            )
        return score_ttt_sgd(
            self.model,
            self.losses_at,
            validation,
            tables,
            ttt=cfg.eval.ttt,
            recipe=ttt_recipe(cfg),
            stride=cfg.eval.stride,
            batch_seqs=cfg.eval.stride_batch_seqs,
            ranks=self.ranks,
            observe=observe,
            watcher=watcher,
        )


def score(model: nn.Module, cfg: Config, dataset: Dataset | None = None) -> Score:
    """Score a model's weights on the validation data of `cfg` (opened if not given), on `cfg.launch.device`."""
    ranks = Ranks(device=torch.device(cfg.launch.device))
    return Scorer(cfg, dataset or open_dataset(cfg), ranks)(model.state_dict())
