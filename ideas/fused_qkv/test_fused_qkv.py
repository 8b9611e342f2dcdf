"""One stored matrix is the same model as three: equal outputs, gradients, initialisation and optimizer steps."""

import pytest
import torch
from torch import Tensor

from golf.settings.config import Config, ModelConfig, OptimConfig
from golf.training.model.build import build_model
from golf.training.model.gpt import GPT
from golf.training.optim.groups import build_optimizer
from ideas.fused_qkv.fused_qkv import FusedQKV
from ideas.ortho_init.ortho_init import OrthoInit

BATCH = torch.randint(20, (2, 9), generator=torch.Generator().manual_seed(0))


def configured(*techniques: FusedQKV | OrthoInit) -> Config:
    shape = ModelConfig(vocab_size=20, num_layers=2, model_dim=16, num_heads=4, num_kv_heads=2, compute_dtype="fp32")
    return Config(model=shape, optim=OptimConfig(muon_dtype="fp32"), tech={t.name: t for t in techniques})


def pair(*others: OrthoInit) -> tuple[tuple[Config, GPT], tuple[Config, GPT]]:
    """The separate and the fused model with equal weights, none of which is zero."""
    models = []
    for cfg in (configured(*others), configured(FusedQKV(), *others)):
        model = build_model(cfg)
        for block in model.blocks:
            block.attn.proj.weight.data.normal_(0, 0.1, generator=torch.Generator().manual_seed(1))
            block.mlp.proj.weight.data.normal_(0, 0.1, generator=torch.Generator().manual_seed(2))
        models.append((cfg, model))
    return models[0], models[1]


def stacked(model: GPT, layer: int, gradients: bool = False) -> Tensor:
    parts = [getattr(model.blocks[layer].attn, f"c_{part}").weight for part in "qkv"]
    return torch.cat([p.grad if gradients else p.detach() for p in parts])


def test_outputs_and_gradients_are_those_of_three_matrices() -> None:
    (_, separate), (_, fused) = pair()
    torch.testing.assert_close(fused.logits(BATCH), separate.logits(BATCH))
    for model in (separate, fused):
        model(BATCH[:, :-1], BATCH[:, 1:]).backward()
    for layer, block in enumerate(fused.blocks):
        torch.testing.assert_close(block.attn.c_qkv.weight.grad, stacked(separate, layer, gradients=True))
    separate_rest = {k: p.grad for k, p in separate.named_parameters() if ".attn.c_" not in k}
    fused_rest = {k: p.grad for k, p in fused.named_parameters() if ".attn.c_" not in k}
    torch.testing.assert_close(fused_rest, separate_rest)


@pytest.mark.parametrize("others", [[], [OrthoInit(min_dim=8)]])
def test_initialised_as_the_separate_matrices_are(others: list[OrthoInit]) -> None:
    (_, separate), (_, fused) = pair(*others)
    for layer, block in enumerate(fused.blocks):
        assert torch.equal(block.attn.c_qkv.weight, stacked(separate, layer))


def test_muon_orthogonalises_the_rows_of_each_matrix_by_themselves() -> None:
    (plain_cfg, separate), (fused_cfg, fused) = pair()
    assert fused.blocks[0].attn.c_qkv.separate_rows == {"weight": [16, 8, 8]}
    before = stacked(separate, 0)
    for cfg, model in ((plain_cfg, separate), (fused_cfg, fused)):
        optimizer = build_optimizer(cfg, model)
        model(BATCH[:, :-1], BATCH[:, 1:]).backward()
        optimizer.step(1.0, 0.9)
    assert (stacked(separate, 0) - before).norm(dim=1).min() > 1e-3
    for layer, block in enumerate(fused.blocks):
        torch.testing.assert_close(block.attn.c_qkv.weight.detach(), stacked(separate, layer), rtol=1e-4, atol=1e-5)
