"""The four forms of a parallel residual against their formulas, written out over plain tensors."""

from typing import Any

import pytest
import torch
from torch import Tensor

from golf.settings.config import Config, ModelConfig
from golf.training.model.build import build_model
from golf.training.model.gpt import GPT
from golf.training.model.layers import Context
from ideas.parallel_lanes.parallel_lanes import ParallelLanes
from ideas.recurrence.recurrence import Recurrence
from ideas.skip_gates.skip_gates import SkipGates
from tests.support import refusal

IDS = torch.tensor([[3, 9, 9, 0, 17], [1, 2, 3, 4, 5]])
FORMS = ["side_by_side", "separate", "crossed", "crossed_in_turn"]
LAYERS, FIRST = 6, 4


def small_model(*techniques: Any, shaken: bool = True, unet: bool = True) -> GPT:
    shape = ModelConfig(vocab_size=20, num_layers=LAYERS, model_dim=16, num_heads=4, num_kv_heads=2)
    shape.compute_dtype, shape.unet_skips = "fp32", unet
    model = build_model(Config(model=shape, tech={t.name: t for t in techniques})).double()
    generator = torch.Generator().manual_seed(0)
    for param in model.parameters() if shaken else []:
        param.data.normal_(0.2, 0.5, generator=generator)
    return model


def joined(model: GPT, x: Tensor, skip: Tensor, row: int) -> Tensor:
    gate = torch.sigmoid(model.skip_gates[row])
    return gate * x + (1 - gate) * model.skip_weights[row] * skip


def slow_hidden(model: GPT, form: str) -> Tensor:
    """Layers 0, 1, 2 are stored; 3, 4, 5 join them last in, first out; 4 and 5 are parallel."""
    x0 = x = model.stream_start(IDS)
    context = Context(IDS, x0, *model.rotary.tables(IDS.size(1), like=x0), {}, ())
    stored: list[Tensor] = []
    for i in range(FIRST):
        x = joined(model, x, stored.pop(), 0) if i == 3 else x
        x = model.blocks[i](x, context)
        stored += [x] * (i < 3)
    a = m = x
    for i in range(FIRST, LAYERS):
        block, skip, row = model.blocks[i], stored.pop(), i - 3
        a = joined(model, a, skip, row)
        m = {"side_by_side": a, "crossed_in_turn": joined(model, m, skip, row)}.get(form, m)
        if form == "separate" and i == FIRST:
            # The record joins its first skip before it splits the stream (`lanes08` in test_stacks.py).
            m = a

        def mix(lane: Tensor, block: Any = block) -> Tensor:
            return block.resid_mix[0] * lane + block.resid_mix[1] * x0

        def attention(u: Tensor, block: Any = block) -> Tensor:
            return block.attn_scale * block.attn(block.attn_norm(u), context)

        def mlp(u: Tensor, block: Any = block) -> Tensor:
            return block.mlp_scale * block.mlp(block.mlp_norm(u))

        if form == "side_by_side":
            a = m = mix(a) + attention(mix(a)) + mlp(mix(a))
        elif form == "separate":
            a, m = mix(a) + attention(mix(a)), m + mlp(m)
        else:
            lam, rho = model.parallel_post_lambdas[i - FIRST], model.parallel_resid_lambdas[i - FIRST]
            out = attention(mix(a))
            if form == "crossed":
                fed = mlp(m)
                a, m = rho[0] * a + lam[0, 0] * out + lam[1, 0] * fed, rho[1] * m + lam[0, 1] * out + lam[1, 1] * fed
            else:
                a, m = rho[0] * a + lam[0, 0] * out, rho[0] * m + lam[0, 1] * out
                fed = mlp(mix(m))
                a, m = rho[1] * a + lam[1, 0] * fed, rho[1] * m + lam[1, 1] * fed
    share = model.lane_merge if form == "separate" else 0.5
    return model.final_norm(share * a + (1 - share) * m)


@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_its_formula(form: str) -> None:
    model = small_model(ParallelLanes(form, FIRST), SkipGates())
    ours, slow = model.hidden(IDS), slow_hidden(model, form)
    torch.testing.assert_close(ours, slow, rtol=1e-9, atol=1e-12)
    weights = torch.randn(ours.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    grads = [
        torch.autograd.grad((weights * out).sum(), list(model.parameters()), allow_unused=True) for out in (ours, slow)
    ]
    torch.testing.assert_close(grads[0], grads[1], rtol=1e-8, atol=1e-10)
    assert all(g is not None and g.reshape(len(g), -1).any(1).all() for g in grads[0] if g is not None and g.ndim > 2)


def test_crossed_lanes_that_write_alike_are_side_by_side() -> None:
    beside, lanes = (
        small_model(ParallelLanes("side_by_side", 2), unet=False),
        small_model(ParallelLanes("crossed", 2), unet=False),
    )
    lanes.load_state_dict(beside.state_dict(), strict=False)
    for model in (beside, lanes):
        for block in model.blocks:
            block.resid_mix.data.copy_(torch.stack((torch.ones(16), torch.zeros(16))))
    for param in (lanes.parallel_post_lambdas, lanes.parallel_resid_lambdas):
        param.data.fill_(1.0)
    torch.testing.assert_close(lanes.hidden(IDS), beside.hidden(IDS))


@pytest.mark.parametrize("form", FORMS)
def test_at_the_start_blocks_are_the_identity_and_lanes_grow_by_a_tenth_a_layer(form: str) -> None:
    model = small_model(ParallelLanes(form, FIRST), shaken=False, unet=False)
    seen: list[Any] = []
    model.final_norm = lambda x: seen.append(x) or x  # type: ignore[func-returns-value]
    model.hidden(IDS)
    growth = 1.1**2 if "crossed" in form else 1.0
    torch.testing.assert_close(seen[0], growth * model.stream_start(IDS), rtol=1e-6, atol=1e-9)


def test_lanes_have_rows_for_their_layers_alone() -> None:
    shapes = {k: list(p.shape) for k, p in small_model(ParallelLanes("crossed", -2)).named_parameters() if "lanes" in k}
    assert shapes == {}
    model = small_model(ParallelLanes("crossed", -2))
    assert model.parallel_post_lambdas.shape == (2, 2, 2) and model.parallel_resid_lambdas.shape == (2, 2)
    plain = {name for name, _ in small_model().named_parameters()}
    beside = {name for name, _ in small_model(ParallelLanes()).named_parameters()}
    assert beside == plain


def test_lanes_follow_a_loop_that_ends_before_them() -> None:
    model = small_model(ParallelLanes("crossed", FIRST), Recurrence(first=1, last=2, passes=2))
    assert not torch.allclose(model.hidden(IDS, ()), model.hidden(IDS, ("recurrence",)))


LANES = ["scale=laptop", "model=9l", "model.num_layers=6", "tech=[parallel_lanes]", "tech.parallel_lanes.form=crossed"]


@pytest.mark.parametrize(
    ("overrides", "part"),
    [
        (["tech.parallel_lanes.first=6"], "tech.parallel_lanes.first=6, but the model has layers 0 to 5."),
        (["tech.parallel_lanes.first=5"], "needs at least two layers in lanes"),
        (["tech.parallel_lanes.first=2"], "from layer 2 on a U-net skip starts or a loop goes back"),
        (["tech=[parallel_lanes,recurrence]", "tech.parallel_lanes.first=4"], "Lanes last to the end"),
        (["tech.parallel_lanes.form=braided"], "is not known: choose one of side_by_side, separate, crossed"),
        (["model.num_layers=1", "tech.parallel_lanes.first=0"], "needs at least two layers"),
    ],
)
def test_what_cannot_be_is_one_sentence(overrides: list[str], part: str) -> None:
    found = refusal(*LANES, *overrides)
    assert part in found and "\n" not in found
