"""The term against a loop over patches; no gradient flows through targets, and no score or file has the head."""

from __future__ import annotations

import pytest
import torch

import golf
from golf.errors import GolfError
from golf.training.model.gpt import GPT
from golf.training.model.objective import Pass
from ideas.jepa.jepa import next_patch

BOS = 1
TINY = ["model=4l", "scale=laptop", "model.model_dim=32", "model.num_heads=2", "model.num_kv_heads=1"]
CHOSEN = ["tech=[jepa]", "tech.jepa.patch=3", "tech.jepa.weight=0.25", "model.compute_dtype=fp32"]
HOW = {"patch": 3, "spread_weight": 0.02, "least_spread": 0.5}


def filled() -> GPT:
    model = golf.build_model(golf.compose([*TINY, *CHOSEN]))
    torch.manual_seed(0)
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.3)
    return model.double()


def text() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    ids = torch.randint(2, 1024, (2, 15))
    ids[0, 0] = ids[0, 7] = BOS
    return ids[:, :-1], ids[:, 1:]


def term(model: GPT, ids: torch.Tensor, weight: float = 0.25) -> torch.Tensor:
    nothing = torch.zeros(())
    return next_patch(Pass(model, ids, ids, model.hidden(ids, ()), nothing, nothing, ()), weight=weight, **HOW)


@torch.no_grad()
def test_the_loss_is_that_of_a_loop_over_patches() -> None:
    model, (inputs, targets) = filled(), text()
    head, hidden = model.training_only["jepa"], model.hidden(inputs, ())
    errors, predictions = [], []
    for row in range(2):
        for begin in (3, 6, 9):
            state = hidden[row, begin - 1]
            state = state / (state.square().mean() + torch.finfo(state.dtype).eps).sqrt()
            p = head.proj.weight @ (head.fc.weight @ state).clamp(min=0) ** 2
            predictions.append(p)
            following = inputs[row, begin : begin + 3].tolist()
            mean = sum(model.tok_emb.weight[token] for token in following) / 3
            if BOS not in following:
                u = p / (p @ p + 0.01).sqrt()
                v = mean / (mean.square().mean() + 1.19e-7).sqrt()
                errors.append(((u - v / (v @ v + 0.01).sqrt()) ** 2).sum() / 32)
    channels = torch.stack(predictions)
    deviations = ((channels - channels.mean(0)) ** 2).mean(0).sqrt()
    collapse = sum(max(0.0, 0.5 - d) for d in deviations.tolist()) / 32
    expected = model.token_losses(inputs, targets).mean() + 0.25 * (sum(errors) / len(errors) + 0.02 * collapse)
    assert len(errors) == 5
    assert model(inputs, targets, ()).item() == pytest.approx(expected.item(), rel=1e-6)


def test_targets_carry_no_gradient() -> None:
    """With the states cut off, the head alone moves."""
    model, (ids, _) = filled(), text()
    cut = Pass(model, ids, ids, model.hidden(ids, ()).detach(), torch.zeros(()), torch.zeros(()), ())
    next_patch(cut, weight=1.0, **HOW).backward()
    moved = {name for name, p in model.named_parameters() if p.grad is not None and p.grad.any()}
    assert moved == {"training_only.jepa.fc.weight", "training_only.jepa.proj.weight"}


def test_another_document_changes_no_error_of_this_one() -> None:
    model, (ids, _) = filled(), text()
    gradients = []
    for changed in (False, True):
        other = ids.clone()
        if changed:
            other[0, 8:] = (other[0, 8:] + 7) % 1000 + 2
        hidden = model.hidden(ids, ()).detach().requires_grad_()
        nothing = torch.zeros(())
        done = Pass(model, other, other, hidden, nothing, nothing, ())
        next_patch(done, weight=1.0, patch=3, spread_weight=0.0, least_spread=0.0).backward()
        gradients.append(hidden.grad[0, :7])
    torch.testing.assert_close(*gradients, rtol=0, atol=0)


def test_a_weight_of_zero_is_the_dropped_variant_and_no_score_has_the_head() -> None:
    model, (inputs, targets) = filled(), text()
    plain = golf.build_model(golf.compose([*TINY, "model.compute_dtype=fp32"])).double()
    assert "training_only.jepa.proj.weight" in model.state_dict()
    plain.load_state_dict(model.scored_weights())
    with torch.no_grad():
        nats = model.token_losses(inputs, targets)
        assert torch.equal(nats, plain.token_losses(inputs, targets))
        assert (nats.mean() + term(model, inputs, 0.0)).item() == plain(inputs, targets, ()).item()


def test_the_first_gradient_is_finite_and_small() -> None:
    cfg = golf.compose([*TINY, *CHOSEN])
    model, (inputs, targets) = golf.build_model(cfg), text()
    model(inputs, targets, ()).backward()
    assert model.training_only["jepa"].proj.weight.grad.norm() < 10


def test_a_sequence_without_a_next_patch_is_refused() -> None:
    with pytest.raises(GolfError, match=r"half of data\.train_seq_len"):
        golf.compose([*TINY, "tech=[jepa]", "tech.jepa.patch=2000"])
