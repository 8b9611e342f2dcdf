"""Which matrices become orthogonal, at which gain, and which keep what they had."""

import pytest
import torch
from torch import Tensor

from golf.settings.config import Config, ModelConfig
from golf.training.model.build import build_model
from ideas.bigram.bigram import Bigram
from ideas.ortho_init.ortho_init import OrthoInit
from ideas.value_embed.value_embed import ValueEmbed

LAYERS = 3
Techniques = OrthoInit | Bigram | ValueEmbed


def weights(*techniques: Techniques, kv_heads: int = 1) -> dict[str, Tensor]:
    """Matrices of a model of width 128 with two heads of 64 channels."""
    shape = ModelConfig(vocab_size=80, num_layers=LAYERS, model_dim=128, num_heads=4, num_kv_heads=kv_heads)
    shape.tie_embeddings, shape.compute_dtype = False, "fp32"
    model = build_model(Config(model=shape, tech={t.name: t for t in techniques}))
    return {name: p.detach() for name, p in model.named_parameters() if p.ndim == 2}


def assert_orthogonal(weight: Tensor, gain: float, name: str) -> None:
    """All singular values are `gain`: rows are orthogonal if there are fewer of them than columns, else columns."""
    values = torch.linalg.svdvals(weight.double())
    torch.testing.assert_close(values, torch.full_like(values, gain), rtol=1e-4, atol=0, msg=name)


def test_large_matrices_are_orthogonal_and_the_embedding_is_not() -> None:
    found, before = weights(OrthoInit(), kv_heads=2), weights(kv_heads=2)
    for i in range(LAYERS):
        for name in (f"blocks.{i}.attn.c_q", f"blocks.{i}.attn.c_k", f"blocks.{i}.attn.c_v", f"blocks.{i}.mlp.fc"):
            assert_orthogonal(found[f"{name}.weight"], 1.0, name)
    for name in ("tok_emb.weight", "lm_head.weight", "blocks.0.resid_mix"):
        assert torch.equal(found[name], before[name])


def test_matrices_with_a_side_below_64_keep_their_own_initialisation() -> None:
    found, before = weights(OrthoInit(), Bigram(buckets=90, dim=63)), weights(Bigram(buckets=90, dim=63))
    for name in ("blocks.0.attn.c_k.weight", "blocks.2.attn.c_v.weight", "bigram.proj.weight"):
        assert min(found[name].shape) < 64
        assert torch.equal(found[name], before[name])
    assert_orthogonal(weights(OrthoInit(min_dim=32))["blocks.0.attn.c_k.weight"], 1.0, "smaller min_dim")


@pytest.mark.parametrize("proj_init", ["zero", "ortho_depth_scaled", "default"])
def test_projections_of_embeddings_are_scaled_by_depth_in_any_case(proj_init: str) -> None:
    found = weights(OrthoInit(proj_init=proj_init), Bigram(buckets=90, dim=64), ValueEmbed(dim=64), kv_heads=2)
    for name in ("bigram.proj.weight", "ve_shared.proj.weight"):
        assert_orthogonal(found[name], (2 * LAYERS) ** -0.5, name)
    assert found["bigram.embed.weight"].abs().max() == 0


def test_projections_of_embeddings_may_have_gain_one() -> None:
    found = weights(OrthoInit(embed_proj_gain="one"), Bigram(buckets=90, dim=64), ValueEmbed(dim=64), kv_heads=2)
    for name in ("bigram.proj.weight", "ve_shared.proj.weight"):
        assert_orthogonal(found[name], 1.0, name)


def test_the_switch_decides_on_output_projections() -> None:
    outputs = [f"blocks.{i}.{part}.proj.weight" for i in range(LAYERS) for part in ("attn", "mlp")]
    zero, scaled, default = (weights(OrthoInit(proj_init=how)) for how in ("zero", "ortho_depth_scaled", "default"))
    assert all(found["lm_head.weight"].abs().max() == 0 for found in (zero, scaled, default))
    for name in outputs:
        assert zero[name].abs().max() == 0
        assert_orthogonal(scaled[name], (2 * LAYERS) ** -0.5, name)
        bound = default[name].size(1) ** -0.5  # torch draws linear layers uniformly from ±1/√inputs
        assert default[name].abs().max() <= bound
        assert default[name].std().item() == pytest.approx(bound / 3**0.5, rel=0.05)
