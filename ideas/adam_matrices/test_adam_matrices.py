"""Steps of whole models against torch's AdamW on the matrices."""

from __future__ import annotations

import pytest
import torch

import golf


@pytest.mark.parametrize("form", ["sharded", "parallel"])
def test_steps_are_those_of_torch(form: str) -> None:
    chosen = [
        "tech=[adam_matrices]",
        "tech.adam_matrices.rate=1",
        "optim.matrix_lr=0.01",
        "optim.muon_wd=0.1",
        f"optim.muon={form}",
    ]
    cfg = golf.compose(["model=4l", "scale=laptop", "optim.muon_dtype=fp32", "model.compute_dtype=fp32", *chosen])
    torch.manual_seed(0)
    model, twin = golf.build_model(cfg), golf.build_model(cfg)
    optimizer = golf.build_optimizer(cfg, model)
    names = [n for n, p in twin.named_parameters() if n.startswith("blocks.") and n.endswith(".weight") and p.ndim == 2]
    # No decay at the moment that golf's schedule tapers; both get the same gradients.
    torchs = torch.optim.AdamW([twin.get_parameter(n) for n in names], lr=0.005, betas=(0.9, 0.95), weight_decay=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        for name, parameter in model.named_parameters():
            parameter.grad = torch.randn_like(parameter)
            twin.get_parameter(name).grad = parameter.grad.clone()
        optimizer.step(lr_multiplier=0.5)
        torchs.step()
    assert names
    for name in names:
        torch.testing.assert_close(model.get_parameter(name), twin.get_parameter(name), rtol=1e-5, atol=1e-6)
