"""What eager runs compute on a CPU against torch's own operations."""

from unittest.mock import Mock

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from golf.training.model.attention import attend_sdpa
from golf.training.model.build import build_model
from golf.training.model.eager_cpu import (
    BLOCK,
    LARGEST_CAP,
    LONGEST,
    LONGEST_IN_FLOAT32,
    attend_in_blocks,
    blocks,
    softcapped_losses,
    suits_eager_cpu,
    turn_unit_heads,
)
from golf.training.model.gpt import GPT
from golf.training.model.layers import relu_squared, rms_norm
from tests.support import compose


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
    found, expected = attend_in_blocks(*qkv), by_torch(*qkv)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    gradients = torch.autograd.grad(found, qkv, dy)
    torch.testing.assert_close(gradients, torch.autograd.grad(expected, qkv, dy), rtol=1e-4, atol=2e-5)


def test_blocks_cover_every_position_once() -> None:
    covered = [p for start, stop in blocks(2 * BLOCK + 3) for p in range(start, stop)]
    assert covered == list(range(2 * BLOCK + 3))


def test_training_on_a_cpu_takes_it_and_scoring_does_not() -> None:
    q, k, v = inputs(1, 8, 2, 2, 4)
    assert "Blockwise" in _ancestors(attend_sdpa(q, k, v))
    longer = inputs(1, LONGEST + 1, 1, 1, 1)
    assert "Blockwise" not in _ancestors(attend_sdpa(*longer))
    assert not suits_eager_cpu(q.double()) and not suits_eager_cpu(q.to("meta"))
    with torch.no_grad():
        torch.testing.assert_close(attend_sdpa(q, k, v), by_torch(q, k, v))


def _ancestors(tensor: Tensor) -> str:
    names, node = [], tensor.grad_fn
    while node is not None:
        names.append(type(node).__name__)
        node = node.next_functions[0][0] if node.next_functions else None
    return " ".join(names)


@pytest.mark.parametrize(("tokens", "in_float32"), [(LONGEST_IN_FLOAT32, True), (LONGEST_IN_FLOAT32 + 1, False)])
@pytest.mark.parametrize("compiles", [True, False])
def test_attention_of_bf16_trains_in_float32_where_that_is_faster(
    tokens: int, in_float32: bool, compiles: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: compiles)
    qkv = [t.detach().bfloat16().requires_grad_() for t in inputs(1, tokens, 1, 2, 4)]
    called = Mock(wraps=F.scaled_dot_product_attention)
    monkeypatch.setattr(F, "scaled_dot_product_attention", called)
    found = attend_sdpa(*qkv)
    assert found.dtype == torch.bfloat16 and ("Blockwise" in _ancestors(found)) == (in_float32 and not compiles)
    dtypes = [call.args[0].dtype for call in called.call_args_list]
    assert dtypes == ([] if in_float32 and not compiles else [torch.float32 if in_float32 else torch.bfloat16])
    torch.testing.assert_close(found.float(), by_torch(*qkv), rtol=2e-2, atol=1e-2)
    attend_sdpa(*(t.detach() for t in qkv))
    assert called.call_args.args[0].dtype == torch.bfloat16


@pytest.mark.parametrize("eps", [None, 1e-2])
def test_the_eager_norm_is_torch_s(eps: float | None) -> None:
    x = torch.randn(4, 6, 10, generator=torch.Generator().manual_seed(0), requires_grad=True)
    dy = torch.randn(4, 6, 10, generator=torch.Generator().manual_seed(1))
    found, expected = rms_norm(x, eps), F.rms_norm(x, (10,), eps=eps)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found, x, dy), torch.autograd.grad(expected, x, dy))


def test_the_eager_norm_of_zeros_has_a_gradient() -> None:
    x = torch.zeros(2, 4, requires_grad=True)
    rms_norm(x).sum().backward()
    assert x.grad is not None and x.grad.isfinite().all()


@pytest.mark.parametrize("needs_gradient", [True, False])
@settings(max_examples=20, deadline=None)
@given(rows=st.integers(1, 40), vocabulary=st.sampled_from([2, 7, 300]), cap=st.sampled_from([5.0, 30.0, 60.0]))
def test_capped_losses_and_their_gradients_are_those_of_torch(
    needs_gradient: bool, rows: int, vocabulary: int, cap: float
) -> None:
    generator = torch.Generator().manual_seed(rows * vocabulary)
    x = torch.randn(2, rows, 6, generator=generator, dtype=torch.float64).mul_(8).requires_grad_()
    weight = torch.randn(vocabulary, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(vocabulary, (2, rows), generator=generator)
    each = torch.rand(2, rows, generator=generator, dtype=torch.float64)
    capped = cap * torch.tanh(x @ weight.T / cap)
    expected = F.cross_entropy(capped.flatten(0, 1), targets.flatten(), reduction="none").view(2, rows)
    own = [t.detach().float().requires_grad_(needs_gradient) for t in (x, weight)]
    found = softcapped_losses(own[0], own[1], targets, cap)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=2e-5)
    if needs_gradient:
        gradients = torch.autograd.grad(found, own, each.float())
        exact = torch.autograd.grad(expected, (x, weight), each)
        torch.testing.assert_close([g.double() for g in gradients], list(exact), rtol=2e-4, atol=2e-4)


def test_losses_at_the_cap_are_finite() -> None:
    x, weight = torch.full((1, 1, 4), 1e6), torch.cat((torch.ones(1, 4), -torch.ones(2, 4)))
    losses = [softcapped_losses(x, weight, torch.tensor([[t]]), LARGEST_CAP).item() for t in (0, 1)]
    assert losses == pytest.approx([0.0, 2 * LARGEST_CAP], abs=1e-4)


def test_chunks_of_logits_do_not_change_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    x, weight = torch.randn(1, 50, 8, generator=generator), torch.randn(64, 8, generator=generator)
    targets = torch.randint(64, (1, 50), generator=generator)
    whole = softcapped_losses(x, weight, targets, 30.0)
    monkeypatch.setattr("golf.training.model.eager_cpu.CHUNK_BYTES", 64 * 4 * 7)
    torch.testing.assert_close(softcapped_losses(x, weight, targets, 30.0), whole)


@pytest.mark.parametrize(("heads", "eps"), [(1, None), (3, 1e-2)])
def test_unit_heads_turn_as_norm_turn_and_gain_do(heads: int, eps: float | None) -> None:
    generator = torch.Generator().manual_seed(heads)
    x = torch.randn(2, 5, heads, 8, generator=generator, requires_grad=True)
    gain = torch.rand(heads, generator=generator, requires_grad=True)
    angle = torch.rand(1, 5, 1, 4, generator=generator)
    found = turn_unit_heads(x, gain, angle.cos(), angle.sin(), eps)
    expected = turned_by_hand(F.rms_norm(x, (8,), eps=eps), angle) * gain[:, None]
    dy = torch.randn(x.shape, generator=generator)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found, (x, gain), dy), torch.autograd.grad(expected, (x, gain), dy))


@pytest.mark.parametrize("technique", ["none", "norm_eps", "ln_scale", "partial_rope"])
def test_heads_of_a_model_are_those_of_separate_operations(technique: str, monkeypatch: pytest.MonkeyPatch) -> None:
    switch = [] if technique == "none" else [f"tech={technique}"]
    cfg = compose(
        [*switch, "model.vocab_size=64", "model.num_layers=3", "model.model_dim=32", "model.compute_dtype=fp32"]
    )
    torch.manual_seed(0)
    model, ids = build_model(cfg), torch.randint(64, (2, 8), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.1)
    turn = Mock(wraps=turn_unit_heads)
    monkeypatch.setattr("golf.training.model.attention.turn_unit_heads", turn)
    loss = model(ids, ids)
    # Two for each of three layers. Where some channels of a head do not turn, the operations are separate.
    assert turn.call_count == (0 if technique == "partial_rope" else 6)
    gradients = torch.autograd.grad(loss, [*model.parameters()], allow_unused=True)
    for module in ("layers", "attention", "gpt"):
        monkeypatch.setattr(f"golf.training.model.{module}.suits_eager_cpu", lambda x: False)
    plain = model(ids, ids)
    torch.testing.assert_close(loss, plain)
    torch.testing.assert_close(gradients, torch.autograd.grad(plain, [*model.parameters()], allow_unused=True))


def test_bf16_is_no_farther_from_float32_than_by_the_operations_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    size = ["model.vocab_size=64", "model.num_layers=3", "model.model_dim=32"]
    short, exact = (build_model(compose([*size, f"model.compute_dtype={dtype}"])) for dtype in ("bf16", "fp32"))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in short.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    exact.load_state_dict(short.state_dict())
    ids = torch.randint(64, (4, 65), generator=generator)

    def loss_and_gradients(model: GPT) -> list[Tensor]:
        loss = model(ids[:, :-1], ids[:, 1:])
        return [loss.detach(), *(g.double() for g in torch.autograd.grad(loss, [*model.parameters()]))]

    def errors(found: list[Tensor]) -> tuple[float, float]:
        off = [float((a - b).norm() / b.norm()) for a, b in zip(found, expected, strict=True)]
        return off[0], sum(off[1:]) / len(off[1:])

    expected = loss_and_gradients(exact)
    loss, gradients = errors(loss_and_gradients(short))
    monkeypatch.setattr("golf.training.model.eager_cpu.OFF", True)
    plain_loss, plain_gradients = errors(loss_and_gradients(short))
    assert max(loss, plain_loss) < 1e-3 and 0 < gradients < 1.05 * plain_gradients < 0.1


def test_squared_relu_has_the_gradient_of_torch_to_the_last_bit() -> None:
    generator = torch.Generator().manual_seed(0)
    x, dy = (torch.randn(7, 9, generator=generator) for _ in range(2))
    x[0, 0] = 0
    x.requires_grad_()
    found, expected = relu_squared(x), x.relu().square()
    assert "ReluSquared" in _ancestors(found) and torch.equal(found, expected)
    assert torch.equal(*(torch.autograd.grad(y, x, dy)[0] for y in (found, expected)))


def turned_by_hand(x: Tensor, angle: Tensor) -> Tensor:
    """Channel j and j + D/2 as a complex number, turned by minus the angle."""
    a, b = x.chunk(2, dim=-1)
    turned = torch.complex(a, b) * torch.exp(-1j * angle)
    return torch.cat((turned.real, turned.imag), dim=-1)
