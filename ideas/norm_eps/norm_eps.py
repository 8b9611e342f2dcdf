"""An eps of its own for each place where the stream is normalised; null keeps torch's 1.19e-7."""

from __future__ import annotations

from dataclasses import dataclass

from golf.errors import GolfError
from golf.settings.config import Config
from golf.training.model.gpt import GPT
from golf.training.model.slots import set_fields
from golf.training.techniques.base import Technique, technique


@technique("norm_eps")
@dataclass
class NormEps(Technique):
    """An eps of 1e-6 is looser than the default, not tighter. Only tiny inputs notice, such as a fresh embedding."""

    source = "PR #1559 (attn: 1e-6)"

    attn: float | None = 1e-6
    mlp: float | None = None
    qk: float | None = None
    embed: float | None = None
    final: float | None = None

    def check(self, cfg: Config) -> None:
        if all(value is None for value in vars(self).values()):
            raise GolfError("tech.norm_eps sets no eps at all: give one, or drop norm_eps.")

    def edit_model(self, model: GPT, cfg: Config) -> None:
        set_fields(model, "embed_norm", self.name, eps=self.embed)
        set_fields(model, "final_norm", self.name, eps=self.final)
        for block in model.controls:
            set_fields(block, "attn_norm", self.name, eps=self.attn)
            set_fields(block, "mlp_norm", self.name, eps=self.mlp)
            set_fields(block.attn, "qk_norm", self.name, eps=self.qk)
