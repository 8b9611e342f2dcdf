"""The weighted mean against a loop over tokens; no gradient flows through the weights."""

from __future__ import annotations

import math

import torch

import golf


def test_the_loss_is_the_weighted_mean() -> None:
    chosen = ["model=4l", "scale=laptop", "model.model_dim=32", "model.num_heads=2", "model.num_kv_heads=1"]
    chosen += ["model.compute_dtype=fp32", "tech=[focal_loss]", "tech.focal_loss.gamma=1.5"]
    model = golf.build_model(golf.compose(chosen))
    torch.manual_seed(0)
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.3)
    ids = torch.randint(0, 1024, (2, 9))
    nats = model.token_losses(ids[:, :-1], ids[:, 1:])
    weights = [(1 - math.exp(-n)) ** 1.5 for n in nats.flatten().tolist()]
    expected = sum(w * n for w, n in zip(weights, nats.flatten(), strict=True)) / sum(weights)
    loss = model(ids[:, :-1], ids[:, 1:])
    torch.testing.assert_close(loss, torch.as_tensor(expected), rtol=1e-5, atol=1e-5)
    head = model.tok_emb.weight
    (one,), (other,) = torch.autograd.grad(loss, [head], retain_graph=True), torch.autograd.grad(expected, [head])
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
