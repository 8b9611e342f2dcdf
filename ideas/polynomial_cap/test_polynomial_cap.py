"""Values by hand, a rise up to the cap, and one cap in losses, logits and training."""

import pytest
import torch

import golf
from golf.training.model.gpt import capped_losses
from golf.training.model.kernels.choice import LossKernel
from ideas.polynomial_cap.polynomial_cap import PolynomialCap, polynomial_cap
from tests.training.techniques.small import small_model

IDS = torch.tensor([[3, 9, 9, 0, 17], [1, 2, 3, 4, 5]])


@pytest.mark.parametrize(("logit", "expected"), [(0, 0), (5, 4.604), (10, 7.333), (15, 8.8125), (17, 10), (90, 10)])
def test_values_by_hand(logit: float, expected: float) -> None:
    both = polynomial_cap(torch.tensor([logit, -logit], dtype=torch.float64), 10.0)
    assert both.tolist() == pytest.approx([expected, -expected], abs=5e-4)


def test_it_rises_up_to_the_cap_and_is_flat_beyond() -> None:
    logits = torch.linspace(-30, 30, 2001, dtype=torch.float64, requires_grad=True)
    polynomial_cap(logits, 10.0).sum().backward()
    inside = logits.detach().abs() < 16.8
    assert (logits.grad[inside] > 0).all() and (logits.grad[logits.detach().abs() > 17] == 0).all()


def test_losses_logits_and_training_have_one_cap() -> None:
    model = small_model(PolynomialCap(), layers=3)
    with torch.no_grad():
        # Logits near the cap, where the polynomial is not tanh.
        model.tok_emb.weight *= 8
        raw, targets = model.head(model.hidden(IDS)), IDS.roll(-1, 1)
        expected = -polynomial_cap(raw, 30.0).log_softmax(-1).gather(2, targets[..., None])[..., 0]
        torch.testing.assert_close(model.logits(IDS), polynomial_cap(raw, 30.0))
        torch.testing.assert_close(model.token_losses(IDS, targets).double(), expected, atol=1e-4, rtol=0)
        assert model(IDS, targets).item() == pytest.approx(expected.mean().item(), abs=1e-4)
        assert not torch.allclose(model.token_losses(IDS, targets), capped_losses(raw, targets, 30.0))


def test_kernels_of_the_tanh_cap_are_refused() -> None:
    model = golf.build_model(golf.compose(["model=4l", "scale=laptop", "tech=[polynomial_cap]"]))
    assert "cap" in LossKernel(model).problem(torch.device("cpu"))
