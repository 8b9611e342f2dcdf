"""Both published forms of the gate against loops, the mask at document starts, and the place of each form."""

import math

import numpy as np
import pytest
import torch

from golf.settings.config import Config, ModelConfig
from golf.training.model.build import build_model
from golf.training.model.gpt import GPT
from ideas.smear.smear import Smear, SmearGate, WindowedSmear

BOS = 1
IDS = torch.tensor([[5, BOS, 7, 7, BOS, 9], [BOS, 4, 5, 6, 7, 8]])


def small_model(*techniques: Smear) -> GPT:
    model = ModelConfig(vocab_size=20, num_layers=1, model_dim=8, num_heads=2, num_kv_heads=1, compute_dtype="fp32")
    return build_model(Config(model=model, tech={t.name: t for t in techniques})).double()


def slow_smear(x: np.ndarray, ids: np.ndarray, gate: np.ndarray, form: str, mask: bool) -> np.ndarray:
    y = np.zeros_like(x)
    for b, t, c in np.ndindex(*x.shape):
        g = 1 / (1 + math.exp(-gate[c]))
        starts = t == 0 or (mask and ids[b, t] == BOS)
        previous = 0.0 if starts else x[b, t - 1, c]
        y[b, t, c] = (1 - g) * x[b, t, c] + g * previous if form == "blend" else g * x[b, t, c] + (1 - g) * previous
    return y


@pytest.mark.parametrize("form", ["blend", "keep"])
@pytest.mark.parametrize("mask", [False, True])
def test_mixes_each_channel_with_the_previous_token(form: str, mask: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    x, gate = torch.randn(2, 6, 3, generator=generator).double(), torch.tensor([-2.0, 0.0, 1.5]).double()
    smear = SmearGate(3, form, BOS if mask else None).double()
    smear.gate.data = gate
    expected = slow_smear(x.numpy(), IDS.numpy(), gate.numpy(), form, mask)
    np.testing.assert_allclose(smear(x, IDS).detach().numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize(("form", "own_share"), [("blend", 0.5), ("keep", 0.953)])
def test_share_of_the_own_token_at_the_start(form: str, own_share: float) -> None:
    out = small_model(Smear(form=form)).smear(torch.ones(1, 2, 8).double(), IDS[:1, :2])
    np.testing.assert_allclose(out[0, 0].detach().numpy(), own_share, atol=5e-4)  # nothing comes before it
    np.testing.assert_allclose(out[0, 1].detach().numpy(), 1.0)


@pytest.mark.parametrize("form", ["blend", "keep"])
def test_blend_follows_the_norm_and_keep_precedes_it(form: str) -> None:
    model = small_model(Smear(form=form))
    gate = torch.linspace(-1, 1, 8).double()
    model.smear.gate.data = gate

    def norm(x: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + np.finfo(np.float64).eps)

    def smear(x: np.ndarray) -> np.ndarray:
        return slow_smear(x, IDS.numpy(), gate.numpy(), form, mask=False)

    rows = model.tok_emb.weight.detach().numpy()[IDS.numpy()]
    expected = smear(norm(rows)) if form == "blend" else norm(smear(rows))
    np.testing.assert_allclose(model.stream_start(IDS).detach().numpy(), expected, rtol=1e-9)


@pytest.mark.parametrize("mask", [False, True])
def test_the_windowed_gate_adds_a_share_of_the_previous_token(mask: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    x, weight = torch.randn(2, 6, 5, generator=generator).double(), [0.5, -2.0, 1.0]
    smear = WindowedSmear(3, BOS if mask else None).double()
    assert torch.equal(smear(x, IDS), x)  # nothing at the start
    smear.gate.weight.data, smear.strength.data = torch.tensor([weight]).double(), torch.tensor([0.7]).double()
    found = smear(x, IDS).detach()
    for b, t in np.ndindex(2, 6):
        gate = 1 / (1 + math.exp(-sum(w * x[b, t, c].item() for c, w in enumerate(weight))))
        starts = t == 0 or (mask and IDS[b, t] == BOS)
        expected = x[b, t] if starts else x[b, t] + 0.7 * gate * x[b, t - 1]
        torch.testing.assert_close(found[b, t], expected)


def test_the_first_gradient_reaches_the_strength_and_the_next_the_gate() -> None:
    model = small_model(Smear(form="add", window=4, mask_bos=True))
    names = {name for name, _ in model.named_parameters() if "smear" in name}
    assert names == {"smear.gate.weight", "smear.strength"}
    for first in (True, False):
        model.zero_grad()
        model.stream_start(IDS).pow(3).sum().backward()
        assert model.smear.strength.grad.abs().item() > 0
        assert (model.smear.gate.weight.grad.abs().max().item() > 0) != first
        model.smear.strength.data.add_(0.5)


def test_masked_documents_start_as_they_would_alone() -> None:
    for form in ("blend", "keep", "add"):
        masked = small_model(Smear(form=form, mask_bos=True, window=4))
        leaking = small_model(Smear(form=form, window=4))
        if form == "add":
            for model in (masked, leaking):
                model.smear.strength.data.fill_(0.5)
        alone = IDS[:1, 1:4]  # the document from the first BOS to the next
        torch.testing.assert_close(masked.stream_start(IDS[:1])[:, 1:4], masked.stream_start(alone))
        assert not torch.allclose(leaking.stream_start(IDS[:1])[:, 1], leaking.stream_start(alone)[:, 0])
