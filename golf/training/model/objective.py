"""The training loss of techniques that change it: terms beside the mean of the nats, weights of tokens.

Scores never see it. They read `GPT.token_losses`, and a scored model is built without these techniques.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from golf.errors import GolfError
from golf.settings.config import Config
from golf.training.model.gpt import GPT


@dataclass(frozen=True)
class Pass:
    """The results of a training pass."""

    model: GPT
    ids: Tensor  # [B, T]
    targets: Tensor  # [B, T]
    hidden: Tensor  # [B, T, d], normalised
    raw_logits: Tensor  # [B, T, V], before the cap
    nats: Tensor  # [B, T] float32, those of the score
    active: tuple[str, ...]
    shared: dict[str, Tensor] = field(default_factory=dict)  # what layers have left in `Context.shared`

    def logits(self) -> Tensor:
        """Return the logits `[B, T, V]` float32 that the nats are of, capped."""
        return self.model.softcap(self.raw_logits).float()


Term = Callable[[Pass], Tensor]  # scalar that is added to the mean of the nats
Weigh = Callable[[Pass], Tensor]  # weights of the tokens, [B, T]; no gradient flows through them


def trained_with(techniques: Sequence[Any], cfg: Config, kind: type[GPT] = GPT) -> type[GPT]:
    """Return a class over `kind` that minimises what `techniques` say. Raises `GolfError` for two weights of tokens."""
    terms = [term for technique in techniques for term in technique.training_terms(cfg)]
    weights = [weigh for technique in techniques if (weigh := technique.token_weights(cfg)) is not None]
    if len(weights) > 1:
        raise GolfError("Two techniques weigh the tokens of the training loss: drop one of them.")

    class TrainedGPT(kind):  # type: ignore[misc, valid-type]
        """A GPT whose call returns what training minimises, and leaves the mean of the nats in `mean_nats`.

        Techniques put modules into `training_only` that no score reads. They are trained and saved in checkpoints.
        """

        mean_nats: Tensor

        def __init__(self, *arguments: Any):
            super().__init__(*arguments)
            self.register_buffer("mean_nats", torch.zeros(()), persistent=False)
            self.training_only = nn.ModuleDict()

        def scored_weights(self) -> dict[str, Tensor]:
            """Return the state dict without `training_only`."""
            return {name: t for name, t in self.state_dict().items() if not name.startswith("training_only.")}

        def forward(self, input_ids: Tensor, target_ids: Tensor, active: tuple[str, ...] | None = None) -> Tensor:
            """Return Σ w·nats / Σ w over the tokens plus the terms, a float32 scalar; in eval mode the mean nats."""
            if not self.training:
                return self.token_losses(input_ids, target_ids, active).mean()
            hidden, shared = self.passed(input_ids, active)
            # Once for the nats and the terms: the head is a quarter of a small model's operations.
            raw_logits = self.head(hidden, active or ())
            nats = self.nats(raw_logits, target_ids)
            done = Pass(self, input_ids, target_ids, hidden, raw_logits, nats, active or (), shared)
            loss = nats.mean()
            self.mean_nats.copy_(loss.detach())
            for weigh in weights:
                weight = weigh(done).detach()
                # A column or a number would be broadcast, and the mean would be wrong.
                if weight.shape != nats.shape:
                    raise GolfError(f"token_weights returns {list(weight.shape)}: return a weight a token, [B, T].")
                loss = (weight * nats).sum() / weight.sum()
            for term in terms:
                added = term(done)
                if added is None or (isinstance(added, Tensor) and added.ndim):
                    returned = f"a tensor of shape {list(added.shape)}" if added is not None else "nothing"
                    raise GolfError(f"A term of training_terms returns {returned}: return a scalar, such as a mean.")
                loss = loss + added
            return loss

    return TrainedGPT
