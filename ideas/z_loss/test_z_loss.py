"""The training loss against the definition by a loop; the score stays."""

from __future__ import annotations

import math

import torch

import golf


def test_the_training_loss_has_the_term_and_the_score_has_not() -> None:
    chosen = ["model=4l", "scale=laptop", "model.model_dim=32", "model.num_heads=2", "model.num_kv_heads=1"]
    cfg = golf.compose([*chosen, "tech=[z_loss]", "tech.z_loss.weight=0.25", "model.compute_dtype=fp32"])
    plain = golf.compose([*chosen, "model.compute_dtype=fp32"])
    model, bare = golf.build_model(cfg).double(), golf.build_model(plain).double()
    torch.manual_seed(0)
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.3)
    bare.load_state_dict(model.state_dict())
    ids = torch.randint(0, 1024, (2, 9))
    with torch.no_grad():
        logits = bare.logits(ids[:, :-1]).double()
        sums = [math.log(sum(math.exp(z) for z in row)) for row in logits.flatten(0, 1).tolist()]
        expected = bare(ids[:, :-1], ids[:, 1:]) + 0.25 * sum(s * s for s in sums) / len(sums)
        torch.testing.assert_close(model(ids[:, :-1], ids[:, 1:]).double(), expected.double(), rtol=1e-5, atol=1e-5)
        nats = [net.token_losses(ids[:, :-1], ids[:, 1:]) for net in (model, bare)]
    assert torch.equal(*nats)
