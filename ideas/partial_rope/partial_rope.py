"""Rotary embedding on the first channels of each head only, with NTK scaling beyond an explicit reference length."""

from __future__ import annotations

from dataclasses import dataclass

from golf.errors import GolfError
from golf.registry import Variable
from golf.settings.config import Config
from golf.training.model.gpt import GPT
from golf.training.model.slots import set_fields
from golf.training.techniques.base import Technique, technique


@technique("partial_rope")
@dataclass
class PartialRope(Technique):
    """Frequencies are base^(-2j/dims): the exponent is normalised by `dims`, not by the width of a head."""

    source = "PR #315; NTK scaling as in PR #549, which fixes the reference length at 1024"
    variables = (
        Variable("ROPE_DIMS", "dims", selects=True),
        Variable("PARTIAL_ROPE_DIMS", "dims", selects=True),
    )

    dims: int = 16
    reference_len: int | None = 1024  # tokens up to which the base stays as it is; null = no NTK scaling
    seq_len: int | None = None  # tokens the base is scaled for; null = those of each call, as upstream does

    def check(self, cfg: Config) -> None:
        head_dim = cfg.model.model_dim // cfg.model.num_heads
        if self.dims % 2 or not 0 < self.dims <= head_dim:
            raise GolfError(f"tech.partial_rope.dims={self.dims} has to be even and at most the head's {head_dim}.")

    def edit_model(self, model: GPT, cfg: Config) -> None:
        set_fields(model, "rotary", self.name, dims=self.dims, reference_len=self.reference_len, seq_len=self.seq_len)
