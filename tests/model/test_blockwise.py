"""Attention out of large products against torch's kernel, and the eager norm against torch's."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from golf.model.attention import attend_sdpa
from golf.model.blockwise import BLOCK, LONGEST, attend_blockwise, blocks, suits_blockwise
from golf.model.layers import rms_norm


def inputs(batch: int, tokens: int, heads: int, shared: int, dim: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(batch + tokens + heads)
    sizes = (heads * shared, heads, heads)
    return [torch.randn(batch, tokens, n, dim, generator=generator, requires_grad=True) for n in sizes]


def by_torch(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (t.transpose(1, 2).double() for t in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2).float()


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 3), st.sampled_from([1, 5, BLOCK, BLOCK + 1, 3 * BLOCK - 7]), st.integers(1, 3), st.integers(1, 3)
)
def test_outputs_and_gradients_are_those_of_torch(batch: int, tokens: int, heads: int, shared: int) -> None:
    qkv = inputs(batch, tokens, heads, shared, 8)
    dy = torch.randn(batch, tokens, heads * shared, 8, generator=torch.Generator().manual_seed(0))
    found, expected = attend_blockwise(*qkv), by_torch(*qkv)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    gradients = torch.autograd.grad(found, qkv, dy)
    torch.testing.assert_close(gradients, torch.autograd.grad(expected, qkv, dy), rtol=1e-4, atol=2e-5)


def test_blocks_cover_every_position_once() -> None:
    covered = [p for start, stop in blocks(2 * BLOCK + 3) for p in range(start, stop)]
    assert covered == list(range(2 * BLOCK + 3))


def test_training_on_a_cpu_takes_it_and_scoring_does_not() -> None:
    q, k, v = inputs(1, 8, 2, 2, 4)
    assert suits_blockwise(q) and "Blockwise" in _ancestors(attend_sdpa(q, k, v))
    assert not suits_blockwise(q.detach()) and not suits_blockwise(q.bfloat16())
    assert not suits_blockwise(torch.zeros(1, LONGEST + 1, 1, 1, requires_grad=True))
    with torch.no_grad():
        assert not suits_blockwise(q * 1.0)


def _ancestors(tensor: Tensor) -> str:
    names, node = [], tensor.grad_fn
    while node is not None:
        names.append(type(node).__name__)
        node = node.next_functions[0][0] if node.next_functions else None
    return " ".join(names)


@pytest.mark.parametrize("eps", [None, 1e-2])
def test_the_eager_norm_is_torch_s(eps: float | None) -> None:
    x = torch.randn(4, 6, 10, generator=torch.Generator().manual_seed(0), requires_grad=True)
    dy = torch.randn(4, 6, 10, generator=torch.Generator().manual_seed(1))
    found, expected = rms_norm(x, eps), F.rms_norm(x, (10,), eps=eps)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found, x, dy), torch.autograd.grad(expected, x, dy))
    assert torch.equal(rms_norm(x.detach(), eps), F.rms_norm(x.detach(), (10,), eps=eps))


def test_the_eager_norm_of_zeros_has_a_gradient() -> None:
    x = torch.zeros(2, 4, requires_grad=True)
    rms_norm(x).sum().backward()
    assert x.grad is not None and x.grad.isfinite().all()
