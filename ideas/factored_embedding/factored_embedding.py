"""Factored tied embedding: a narrow table, a map up to the model's width, and a map down before the head."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from golf.errors import GolfError
from golf.settings.config import Config
from golf.settings.fields import number
from golf.training.model.gpt import GPT
from golf.training.model.layers import CastedLinear, RMSNorm, embed_dtype
from golf.training.model.slots import set_slot
from golf.training.techniques.base import Technique, technique


class MapUp(CastedLinear):
    """Rows of the table `[B, T, dim]` to `[B, T, d]`."""

    def forward(self, x: Tensor, _: object = None) -> Tensor:
        """Return the mapped `x`. The ids are not read."""
        return super().forward(x)


@dataclass(frozen=True)
class NormAndMap:
    """The final norm, and the map down to the table's width."""

    norm: RMSNorm
    down: CastedLinear

    def __call__(self, x: Tensor) -> Tensor:
        return self.down(self.norm(x))


@technique("factored_embedding")
@dataclass
class FactoredEmbedding(Technique):
    """The logits are E·W₂·norm(x), where tokens enter as W₁·E; the two maps have nothing in common."""

    source = "ALBERT, arXiv 1909.11942; PR #640"
    conflicts = ("multi_token", "jepa", "norm_eps")
    groups = (("embed_proj.weight", "matrix"), ("embed_proj_rev.weight", "matrix"))

    dim: int = number(254, at_least=1)  # channels of the table

    def check(self, cfg: Config) -> None:
        """Refuse a head of its own, a table that saves nothing, and adapters of the head."""
        if not cfg.model.tie_embeddings:
            raise GolfError("tech.factored_embedding narrows the tied table: set model.tie_embeddings=true with it.")
        if self.dim >= cfg.model.model_dim:
            raise GolfError(
                f"tech.factored_embedding.dim={self.dim} saves nothing: set fewer than model.model_dim="
                f"{cfg.model.model_dim} channels."
            )
        if cfg.eval.ttt.method == "lora" and "head" in cfg.eval.ttt.lora_targets:
            raise GolfError("tech.factored_embedding narrows the head: leave head out of eval.ttt.lora_targets.")

    def edit_model(self, model: GPT, cfg: Config) -> None:
        """Replace the table, map what is looked up before anything is added, and map down after the final norm."""
        m = cfg.model
        table = nn.Embedding(m.vocab_size, self.dim)
        nn.init.normal_(table.weight, std=m.tied_embed_init_std)
        set_slot(model, "tok_emb", table.to(embed_dtype(m.compute_dtype)), self.name)
        model.embed_proj, model.embed_proj_rev = MapUp(self.dim, m.model_dim), CastedLinear(m.model_dim, self.dim)
        model.before_norm["add"].insert(0, model.embed_proj)
        set_slot(model, "final_norm", NormAndMap(model.final_norm, model.embed_proj_rev), self.name)
