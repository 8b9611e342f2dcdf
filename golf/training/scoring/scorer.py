"""Scores of weights under a configuration: one model and one arithmetic for all of them."""

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
from golf.training.scoring.tally import Observe, Tally, Watcher
from golf.training.scoring.ttt_lora import score_ttt_lora
from golf.training.scoring.ttt_sgd import SGDTrainer, score_ttt_sgd


class Scorer:
    """Scores state dicts on the validation split in `eval.dtype`; the ranks share the work.

    Calling it takes the standard score; `sliding` and `test_time_trained` take the others that the configuration asks
    for. Each passes the targets and their nats to `observe`, if it is given.
    """

    def __init__(self, cfg: Config, dataset: Dataset, ranks: Ranks):
        self.cfg, self.dataset, self.ranks = cfg, dataset, ranks
        scored = dataclasses.replace(cfg.model, compute_dtype=cfg.eval.dtype)
        self.model = build_model(dataclasses.replace(cfg, model=scored)).to(ranks.device).eval()
        self.token_losses = compile_for_scoring(self.model, cfg.launch.compile)
        if cfg.eval.ttt.method == "lora":
            # Called for its error alone: a model without such layers is refused before the training, not after it.
            adapted_layers(self.model)

    @functools.cached_property
    def losses_at(self) -> LossesAt:
        """Function for losses at some positions only, for windows that overlap. Compiled when it is first used."""
        return compiled_losses_at(self.model, self.cfg.launch.compile)

    def __call__(
        self,
        state_dict: Mapping[str, Tensor],
        active: tuple[str, ...] | None = None,
        *,
        observe: Observe | None = None,
    ) -> Score:
        """Return the standard score: sequences that do not overlap.

        `active` are the late switches that are on; None scores the model as at the end of training.
        """
        self.model.load_state_dict(state_dict)
        seq_len = eval_seq_len(self.cfg)
        return score_standard(
            lambda inputs, targets: self.token_losses(inputs, targets, active),
            self._tally(observe),
            seq_len=seq_len,
            batch_seqs=self.cfg.eval.val_batch_tokens // self.cfg.data.micro_batches // seq_len,
        )

    def sliding(self, state_dict: Mapping[str, Tensor], *, observe: Observe | None = None) -> Score:
        """Return the score with windows that are `eval.stride` tokens apart."""
        self.model.load_state_dict(state_dict)
        return score_sliding(
            self.losses_at,
            self._tally(observe),
            seq_len=eval_seq_len(self.cfg),
            stride=self.cfg.eval.stride,
            batch_seqs=self.cfg.eval.stride_batch_seqs,
            tail=self.cfg.eval.tail,
        )

    def test_time_trained(
        self, state_dict: Mapping[str, Tensor], *, watcher: Watcher | None = None, observe: Observe | None = None
    ) -> Score:
        """Return the score with training on text that has been scored. The model ends with `state_dict` in it.

        `watcher` is told how far the scoring is.
        """
        self.model.load_state_dict(state_dict)
        cfg, recipe, tally = self.cfg, ttt_recipe(self.cfg), self._tally(observe)
        if cfg.eval.ttt.method == "lora":
            return score_ttt_lora(self.model, tally, ttt=cfg.eval.ttt, recipe=recipe, seed=cfg.seed, watcher=watcher)
        return score_ttt_sgd(
            SGDTrainer(self.model, tally.tokens, cfg.eval.ttt, recipe, self.ranks),
            self.losses_at,
            tally,
            stride=cfg.eval.stride,
            batch_seqs=cfg.eval.stride_batch_seqs,
            watcher=watcher,
        )

    def _tally(self, observe: Observe | None) -> Tally:
        return Tally(self.dataset.validation, self.dataset.tables, self.ranks, observe)


def score(model: nn.Module, cfg: Config, dataset: Dataset | None = None) -> Score:
    """Return the standard score of a model's weights on the validation data of `cfg`, on `cfg.launch.device`.

    The data is opened if `dataset` is not given.
    """
    ranks = Ranks(device=torch.device(cfg.launch.device))
    return Scorer(cfg, dataset or open_dataset(cfg), ranks)(model.state_dict())
