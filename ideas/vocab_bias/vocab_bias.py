"""Every token of the vocabulary has a learned bias on its logit, before the soft cap."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from golf.settings.config import Config
from golf.training.model.gpt import GPT
from golf.training.techniques.base import Technique, technique


def add_bias(model: GPT, logits: Tensor) -> Tensor:
    """Add the biases to raw logits `[..., V]`."""
    return logits + model.vocab_bias.to(logits.dtype)


@technique("vocab_bias")
@dataclass
class VocabBias(Technique):
    """The biases begin at zero."""

    source = "PR #640"
    groups = (("vocab_bias", "scalar"),)

    def edit_model(self, model: GPT, cfg: Config) -> None:
        """Add the biases."""
        model.vocab_bias = nn.Parameter(torch.zeros(cfg.model.vocab_size))
        model.before_cap.append(add_bias)
