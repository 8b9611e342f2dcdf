"""Scores of weights under a configuration: one model and one arithmetic for all of them."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import torch

from golf.artifact.quant.formats import Tensors
from golf.bits import Score
from golf.settings.config import Config, changes_score, eval_seq_len, ttt_recipe
from golf.training.data.dataset import Dataset, open_dataset
from golf.training.model.build import build_scored_model, compile_for_scoring
from golf.training.model.gpt import GPT
from golf.training.ranks import Ranks
from golf.training.scoring.forward import LossesAt, compiled_losses_at
from golf.training.scoring.lora import check_adapted
from golf.training.scoring.predictor import MixedTally, predictor_of
from golf.training.scoring.sliding import score_sliding, score_sliding_by_document
from golf.training.scoring.standard import score_by_document, score_standard
from golf.training.scoring.tally import Observe, Tally, Watcher
from golf.training.scoring.tilt import NgramTilt, TiltedTally, hinted_losses_at
from golf.training.scoring.ttt_lora import LoraScoring
from golf.training.scoring.ttt_sgd import SGDTrainer, score_ttt_sgd


class Scorer:
    """Scores state dicts on the validation split in `eval.dtype`; the ranks share the work.

    Calling it takes the standard score; `sliding` and `test_time_trained` take the others that the configuration asks
    for. Each passes the targets and their nats to `observe`, if it is given.
    """

    def __init__(self, cfg: Config, dataset: Dataset, ranks: Ranks):
        self.cfg, self.dataset, self.ranks = cfg, dataset, ranks
        self.seq_len = eval_seq_len(cfg)
        if cfg.eval.documents and not cfg.model.within_documents:
            # Scores by document need it even if the training has none, and techniques before they edit.
            cfg = dataclasses.replace(cfg, model=dataclasses.replace(cfg.model, within_documents=True))
        self.model = build_scored_model(cfg, ranks.device)
        if cfg.eval.documents:
            # Pieces are as long as scores want them.
            self.model.piece_tokens = self.seq_len
        self.model.rotary.keep(self.seq_len, like=self.model.tok_emb.weight)
        self.token_losses = compile_for_scoring(self.model, cfg.launch)
        if cfg.eval.ttt.method == "lora":
            # Called for its error alone: a model without such layers is refused before the training, not after it.
            check_adapted(self.model, cfg.eval.ttt)

    @functools.cached_property
    def losses_at(self) -> LossesAt:
        """Function for losses at some positions only, for windows that overlap. It is compiled before a clock runs."""
        losses_at = compiled_losses_at(self.model, self.cfg.launch.compile)
        if self.cfg.eval.tilt.method == "ngram":
            # Not compiled, because hints come with it.
            return functools.partial(hinted_losses_at, self.model)
        # First windows of documents score all that they read, so their batches have a shape of their own.
        widths = {self.cfg.eval.stride or self.seq_len} | ({self.seq_len} if self.cfg.eval.documents else set())
        for width in widths if self.cfg.launch.compile == "full" else ():
            batch, device = self.cfg.eval.stride_batch_seqs, self.ranks.device
            ids, positions = (torch.zeros(batch, n, dtype=torch.int64, device=device) for n in (self.seq_len, width))
            with torch.no_grad():
                losses_at(ids, positions, positions)
        return losses_at

    def __call__(
        self, state_dict: Tensors, active: tuple[str, ...] | None = None, *, observe: Observe | None = None
    ) -> Score:
        """Return the standard score: sequences, or pieces of documents, that do not overlap.

        `active` are the late switches that are on; None scores the model as at the end of training.
        """
        self.model.load_state_dict(state_dict)
        # Validations name the switches. Without names here the compiler would build the same graph once more.
        active = self.model.active_in_scoring if active is None else active
        losses = functools.partial(self.token_losses, active=active)
        tally, tokens = self._tally(observe), self.cfg.eval.val_batch_tokens // self.cfg.data.micro_batches
        if self.cfg.eval.documents:
            return score_by_document(losses, tally, seq_len=self.seq_len, row_tokens=tokens)
        return score_standard(losses, tally, seq_len=self.seq_len, batch_seqs=max(1, tokens // self.seq_len))

    def sliding(self, state_dict: Tensors, *, observe: Observe | None = None) -> Score:
        """Return the score with windows that are `eval.stride` tokens apart."""
        self.model.load_state_dict(state_dict)
        # The losses come first, because they may be compiled and the tally's clock runs from its creation.
        losses_at, tally = self.losses_at, self._tally(observe)
        seq_len, stride, batch_seqs = self.seq_len, self.cfg.eval.stride, self.cfg.eval.stride_batch_seqs
        if self.cfg.eval.documents:
            return score_sliding_by_document(losses_at, tally, seq_len=seq_len, stride=stride, batch_seqs=batch_seqs)
        return score_sliding(losses_at, tally, seq_len=seq_len, stride=stride, batch_seqs=batch_seqs)

    def test_time_trained(
        self, state_dict: Tensors, *, watcher: Watcher | None = None, observe: Observe | None = None
    ) -> Score:
        """Return the score with training on text that has been scored. The model ends with `state_dict` in it.

        `watcher` is told how far the scoring is.
        """
        cfg = self.cfg
        if cfg.eval.ttt.method == "lora":
            return self.trained_by_document(state_dict, watcher=watcher, observe=observe)
        self.model.load_state_dict(state_dict)
        recipe, mode = ttt_recipe(cfg), cfg.launch.compile
        trainer = SGDTrainer(self.model, self.dataset.validation, cfg.eval.ttt, recipe, self.ranks, mode)
        if mode == "full":
            trainer.warm_up()
        # The losses come first, as in `sliding`.
        losses_at, tally, batch_seqs = self.losses_at, self._tally(observe), cfg.eval.stride_batch_seqs
        return score_ttt_sgd(trainer, losses_at, tally, stride=cfg.eval.stride, batch_seqs=batch_seqs, watcher=watcher)

    def trained_by_document(
        self,
        state_dict: Tensors,
        *,
        watcher: Watcher | None = None,
        observe: Observe | None = None,
        documents: np.ndarray | None = None,
    ) -> Score:
        """Return what `test_time_trained` returns for `eval.ttt.method=lora`.

        `documents` `[n, 2]` are those of `list_documents` if none are given.
        """
        self.model.load_state_dict(state_dict)
        recipe = ttt_recipe(self.cfg)
        self.model.rotary.keep(recipe.seq_len, like=self.model.tok_emb.weight)
        tally, ttt, seed = self._tally(observe), self.cfg.eval.ttt, self.cfg.seed
        return LoraScoring(self.model, tally, ttt, recipe, seed, documents).score(watcher)

    def _tally(self, observe: Observe | None) -> Tally:
        tokens, target_bytes = self.dataset.validation, self.dataset.target_bytes
        if self.cfg.eval.tilt.method == "ngram":
            return TiltedTally(NgramTilt(self.cfg.eval.tilt), False, tokens, target_bytes, self.ranks, observe)
        if changes_score(self.cfg):
            by_document = self.cfg.eval.documents
            return MixedTally(predictor_of(self.cfg), by_document, tokens, target_bytes, self.ranks, observe)
        return Tally(tokens, target_bytes, self.ranks, observe)


def score(model: GPT, cfg: Config, dataset: Dataset | None = None) -> Score:
    """Return the standard score of a model's weights on the validation data of `cfg`, on `cfg.launch.device`.

    The data is opened if `dataset` is not given.
    """
    ranks = Ranks(device=torch.device(cfg.launch.device))
    return Scorer(cfg, dataset or open_dataset(cfg), ranks)(model.scored_weights())
