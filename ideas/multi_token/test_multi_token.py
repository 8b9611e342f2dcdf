"""The training loss against a double loop over documents; what is scored and exported has no head."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import golf
from golf.training.model.gpt import GPT
from ideas.multi_token.multi_token import within_document

BOS = 1
TINY = ["model=4l", "scale=laptop", "model.model_dim=32", "model.num_heads=2", "model.num_kv_heads=1"]
CHOSEN = ["tech=[multi_token]", "tech.multi_token.count=2", "tech.multi_token.weight=0.25", "model.compute_dtype=fp32"]


def filled(*chosen: str) -> GPT:
    model = golf.build_model(golf.compose([*TINY, *CHOSEN, *chosen]))
    torch.manual_seed(0)
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.3)
    return model.double()


def text() -> torch.Tensor:
    torch.manual_seed(1)
    ids = torch.randint(2, 1024, (2, 11))
    ids[0, 0] = ids[0, 5] = ids[1, 9] = ids[1, 10] = BOS
    return ids


def slow_nats(model: GPT, x: torch.Tensor, ahead: int, target: int) -> float:
    head = model.training_only["multi_token"][ahead - 1].weight
    if head.shape[0] == x.numel():
        y = x + head @ x
        logits = model.tok_emb.weight @ (y / (y.square().mean() + torch.finfo(y.dtype).eps).sqrt())
    else:
        logits = head @ x
    capped = [30 * math.tanh(z / 30) for z in logits.tolist()]
    return math.log(sum(math.exp(z) for z in capped)) - capped[target]


@torch.no_grad()
@pytest.mark.parametrize("head", ["shared", "own"])
def test_the_loss_is_that_of_a_loop_over_documents(head: str) -> None:
    model, ids = filled(f"tech.multi_token.head={head}"), text()
    inputs, targets = ids[:, :-1], ids[:, 1:]
    hidden, expected = model.hidden(inputs, ()), model.token_losses(inputs, targets).mean().item()
    for ahead in (1, 2):
        found = []
        for row in range(2):
            for t in range(inputs.size(1) - ahead):
                # The text between the place and its target, without the target.
                if BOS not in targets[row, t : t + ahead].tolist():
                    found.append(slow_nats(model, hidden[row, t], ahead, int(targets[row, t + ahead])))
        expected += 0.25 / 2 * sum(found) / len(found)
    assert model(inputs, targets, ()).item() == pytest.approx(expected, rel=1e-6)


def test_another_document_changes_no_gradient_of_this_one() -> None:
    model, ids = filled(), text()[:1]
    other = ids.clone()
    other[:, 6:] = (other[:, 6:] + 7) % 1000 + 2

    def later(ids: torch.Tensor) -> torch.Tensor:
        hidden = model.hidden(ids[:, :-1], ()).detach().requires_grad_()
        heads = model.training_only["multi_token"]
        losses = []
        for ahead, predict in enumerate(heads, start=1):
            x = hidden[:, :-ahead]
            y = F.rms_norm(x + predict(x), (32,))
            losses.append((within_document(ids[:, 1:], ahead) * model.losses_of(y, ids[:, 1 + ahead :])).sum())
        return torch.autograd.grad(sum(losses), hidden)[0]

    torch.testing.assert_close(later(ids)[:, :5], later(other)[:, :5], rtol=0, atol=0)


def test_no_score_and_no_file_has_the_heads() -> None:
    model = filled()
    plain = golf.build_model(golf.compose([*TINY, "model.compute_dtype=fp32"])).double()
    assert "training_only.multi_token.1.weight" in model.state_dict()
    plain.load_state_dict(model.scored_weights())
    inputs, targets = text()[:, :-1], text()[:, 1:]
    with torch.no_grad():
        assert torch.equal(model.token_losses(inputs, targets), plain.token_losses(inputs, targets))
