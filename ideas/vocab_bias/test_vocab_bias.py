"""The bias is added before the cap, in logits, losses and the training loss of other techniques."""

import torch

from ideas.vocab_bias.vocab_bias import VocabBias
from ideas.z_loss.z_loss import ZLoss
from tests.training.techniques.small import small_model

IDS = torch.tensor([[3, 9, 9, 0, 17], [1, 2, 3, 4, 5]])


def test_the_bias_is_added_before_the_cap() -> None:
    model = small_model(VocabBias(), layers=3)
    with torch.no_grad():
        hidden = model.hidden(IDS)
        raw = torch.einsum("btd,vd->btv", hidden, model.tok_emb.weight) + model.vocab_bias
        logits, targets = 30 * torch.tanh(raw / 30), IDS.roll(-1, 1)
        torch.testing.assert_close(model.logits(IDS), logits)
        expected = -logits.log_softmax(-1).gather(2, targets[..., None])[..., 0]
        torch.testing.assert_close(model.token_losses(IDS, targets).double(), expected, atol=1e-5, rtol=0)


def test_terms_of_the_training_loss_see_it() -> None:
    model = small_model(VocabBias(), ZLoss(weight=0.5), layers=3)
    targets = IDS.roll(-1, 1)
    with torch.no_grad():
        squared = model.logits(IDS).logsumexp(-1).square().mean()
        expected = model.token_losses(IDS, targets).mean() + 0.5 * squared
        torch.testing.assert_close(model(IDS, targets).double(), expected.double(), atol=1e-5, rtol=0)


def test_it_begins_at_zero() -> None:
    assert not small_model(VocabBias(), layers=3, shaken=False).vocab_bias.any()
