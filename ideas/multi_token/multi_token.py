"""Multi-token prediction: training also predicts the tokens after the next one, by modules that no score has."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from golf.errors import GolfError
from golf.settings.config import Config
from golf.settings.fields import number, one_of
from golf.training.data.documents import BOS_ID
from golf.training.model.gpt import GPT
from golf.training.model.layers import CastedLinear
from golf.training.model.objective import Pass, Term
from golf.training.techniques.base import CHANGES_LOSS, Technique, technique


def within_document(targets: Tensor, ahead: int) -> Tensor:
    """Return 1 where no document begins between a place and the target `ahead` behind its own, `[B, T - ahead]`."""
    starts = F.pad((targets == BOS_ID).long().cumsum(dim=1), (1, 0))
    # The target itself may begin a document: that the text ends there can be learnt.
    return (starts[:, ahead:-1] == starts[:, : -1 - ahead]).float()


def later_tokens(done: Pass, *, weight: float, head: str) -> Tensor:
    """Return weight · the mean over k of the nats of the targets k places later, a scalar."""
    heads, total = done.model.training_only["multi_token"], done.nats.new_zeros(())
    for ahead, predict in enumerate(heads, start=1):
        hidden, targets = done.hidden[:, :-ahead], done.targets[:, ahead:]
        if head == "own":
            nats = done.model.nats(predict(hidden), targets)
        else:
            turned = F.rms_norm(hidden + predict(hidden), (hidden.size(-1),))
            nats = done.model.losses_of(turned, targets, done.active)
        valid = within_document(done.targets, ahead)
        total = total + (valid * nats).sum() / valid.sum().clamp(min=1)
    return weight / len(heads) * total


@technique("multi_token")
@dataclass
class MultiToken(Technique):
    """A head per token ahead; `shared` turns the hidden state by a matrix and reads it with the model's own head."""

    source = "arXiv 2404.19737; PR #88 (own heads), PR #1691 and #1031 (shared)"
    effect = CHANGES_LOSS

    count: int = number(1, at_least=1)  # tokens that are predicted after the next one
    weight: float = number(0.1, above=0)  # of the mean of their nats
    head: str = one_of("shared", "own")  # shared: d² weights a token ahead | own: V·d

    def check(self, cfg: Config) -> None:
        """Refuse sequences in which no token is so far ahead."""
        if self.count >= cfg.data.train_seq_len:
            raise GolfError(f"tech.multi_token.count={self.count} has to be below data.train_seq_len.")

    def edit_model(self, model: GPT, cfg: Config) -> None:
        """Add the heads, which begin at zero."""
        dim, rows = cfg.model.model_dim, cfg.model.vocab_size if self.head == "own" else cfg.model.model_dim
        heads = (CastedLinear(dim, rows, zero_init=True) for _ in range(self.count))
        model.training_only["multi_token"] = nn.ModuleList(heads)

    def group_of(self, name: str) -> str | None:
        """Return `head` for own heads and `matrix` for those that turn the hidden state."""
        if not name.startswith("training_only.multi_token."):
            return None
        return "head" if self.head == "own" else "matrix"

    def training_terms(self, cfg: Config) -> list[Term]:
        """Return the term."""
        return [partial(later_tokens, weight=self.weight, head=self.head)]
