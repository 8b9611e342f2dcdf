"""Exclusive self-attention against a loop over heads, and the two facts that define it."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from golf.training.model.attention import CausalSelfAttention
from golf.training.model.gpt import GPT
from golf.training.techniques.xsa import XSA, exclude_own_value
from tests.training.techniques.small import small_model


def heads_and_values(model: GPT, ids: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
    """For each layer what attention gives, what goes into the output projection, and the values attended to."""
    seen: list[tuple[Tensor, Tensor, Tensor]] = []

    def watch(attn: CausalSelfAttention) -> None:
        attend = attn.attend

        def recorded(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            y = attend(q, k, v)
            attn.proj.register_forward_pre_hook(lambda _, args: seen.append((y, args[0].view(y.shape), v)))
            return y

        attn.attend = recorded

    for block in model.blocks:
        watch(block.attn)
    with torch.no_grad():
        model.logits(ids)
    return seen


def slow_exclusion(y: np.ndarray, v: np.ndarray) -> np.ndarray:
    out, group = y.copy(), y.shape[2] // v.shape[2]
    for b, t, h in np.ndindex(*y.shape[:3]):
        own = v[b, t, h // group]
        out[b, t, h] -= (y[b, t, h] @ own) / (own @ own) * own
    return out


@pytest.mark.parametrize("kv_heads", [1, 2, 6])
def test_every_head_loses_its_part_along_the_value_of_its_group(kv_heads: int) -> None:
    generator = torch.Generator().manual_seed(kv_heads)
    y = torch.randn(2, 5, 6, 4, generator=generator, dtype=torch.float64)
    v = torch.randn(2, 5, kv_heads, 4, generator=generator, dtype=torch.float64)
    found = exclude_own_value(small_model(XSA(last_n=None), layers=5).blocks[0].attn, y, v, y)
    np.testing.assert_allclose(found.numpy(), slow_exclusion(y.numpy(), v.numpy()), atol=1e-12)


@given(seed=st.integers(0, 10_000), size=st.floats(1e-3, 1e3))
@settings(deadline=None)
def test_the_rest_is_orthogonal_to_the_own_value_whatever_its_size(seed: int, size: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    y, v = torch.randn(1, 3, 4, 8, generator=generator), size * torch.randn(1, 3, 2, 8, generator=generator)
    rest = exclude_own_value(None, y, v, y)
    unit = (v / v.norm(dim=-1, keepdim=True)).repeat_interleave(2, dim=2)
    assert (rest * unit).sum(-1).abs().max() <= 1e-6
    torch.testing.assert_close(exclude_own_value(None, rest, v, y), rest, atol=1e-6, rtol=1e-5)


def test_the_first_position_attends_to_nothing_but_itself_and_is_left_with_zero() -> None:
    for _, rest, _ in heads_and_values(small_model(XSA(last_n=None), layers=5), torch.arange(7)[None]):
        assert rest[:, 0].abs().max() <= 1e-12 and rest[:, 1:].abs().amin(dim=(0, 2, 3)).min() > 1e-12


@pytest.mark.parametrize(
    ("last_n", "layers"), [(None, [0, 1, 2, 3, 4]), (1, [4]), (2, [3, 4]), (5, [0, 1, 2, 3, 4]), (9, [0, 1, 2, 3, 4])]
)
def test_which_layers_exclude(last_n: int | None, layers: list[int]) -> None:
    seen = heads_and_values(small_model(XSA(last_n=last_n), layers=5), torch.arange(6)[None])
    for layer, (y, rest, v) in enumerate(seen):
        expected = slow_exclusion(y.numpy(), v.numpy()) if layer in layers else y.numpy()
        np.testing.assert_allclose(rest.numpy(), expected, atol=1e-12, err_msg=f"layer {layer}")
