"""Banks: parameters keep their identity, names and values, and gradients land in the bank."""

import io

import pytest
import safetensors.torch
import torch
from torch import nn

from golf.training.optim.banks import Bank, make_banks


def linears() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(6, 6, bias=False) for _ in range(3)))


def test_parameters_become_views_and_nothing_else_changes() -> None:
    model = linears()
    before = {name: t.clone() for name, t in model.state_dict().items()}
    params = list(model.parameters())
    (bank,) = make_banks(params, {})
    assert all(p is q for p, q in zip(model.parameters(), params, strict=True))
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())
    bank.values[1].zero_()
    assert not params[1].any() and params[0].any()
    model.load_state_dict(before)
    assert torch.equal(bank.values, torch.stack(list(before.values())))
    restored = safetensors.torch.load(safetensors.torch.save(model.state_dict()))
    assert all(torch.equal(t, before[name]) for name, t in restored.items())
    torch.save(model.state_dict(), io.BytesIO())


def test_gradients_accumulate_in_the_bank() -> None:
    model, plain = linears(), linears()
    (bank,) = make_banks(list(model.parameters()), {})
    for _ in range(2):
        bank.zero_grad()
        plain.zero_grad()
        for _ in range(2):
            x = torch.randn(4, 6)
            model(x).square().sum().backward()
            plain(x).square().sum().backward()
    expected = torch.stack([p.grad for p in plain.parameters() if p.grad is not None])
    assert torch.equal(bank.grads, expected)


def test_gradients_put_elsewhere_are_taken_in() -> None:
    params = list(linears().parameters())
    (bank,) = make_banks(params, {})
    bank.grads.fill_(3.0)
    params[0].grad, params[1].grad = None, torch.ones(6, 6)
    bank.collect()
    assert bank.grads.mean(dim=(1, 2)).tolist() == [0.0, 1.0, 3.0]
    assert params[0].grad is not None
    params[0].grad.fill_(5.0)
    assert (bank.grads[0] == 5.0).all()


def test_a_parameter_moved_later_is_an_error() -> None:
    model = linears()
    (bank,) = make_banks(list(model.parameters()), {})
    bank.collect()
    model.double()
    with pytest.raises(RuntimeError, match="moved after its optimizer was built"):
        bank.collect()


def test_one_bank_for_each_shape_and_division() -> None:
    params = [nn.Parameter(torch.randn(8, 4)) for _ in range(3)] + [nn.Parameter(torch.randn(4, 8))]
    banks = make_banks(params, {params[1]: [4, 4]})
    assert [[p.shape for p in bank.params] for bank in banks] == [[(8, 4)] * 2, [(8, 4)], [(4, 8)]]
    assert [s.shape for s in banks[1].segments()] == [(4, 4), (4, 4)]
    assert isinstance(banks[0], Bank) and banks[0].values.shape == (2, 8, 4)
