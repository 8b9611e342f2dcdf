"""Loss and gradients against torch's own label smoothing."""

from __future__ import annotations

import torch
import torch.nn.functional as F

import golf


def test_it_is_torchs_label_smoothing() -> None:
    chosen = ["model=4l", "scale=laptop", "model.model_dim=32", "model.num_heads=2", "model.num_kv_heads=1"]
    chosen += ["model.compute_dtype=fp32", "tech=[label_smoothing]", "tech.label_smoothing.share=0.2"]
    model = golf.build_model(golf.compose(chosen))
    torch.manual_seed(0)
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.3)
    ids = torch.randint(0, 1024, (2, 9))
    parameters = list(model.parameters())
    loss = model(ids[:, :-1], ids[:, 1:])
    logits = model.logits(ids[:, :-1]).float()
    expected = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), label_smoothing=0.2)
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-5)
    for one, other in zip(
        torch.autograd.grad(loss, parameters), torch.autograd.grad(expected, parameters), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)
