"""The looped order of the blocks, its skips, and what the model is before the loop starts."""

import numpy as np
import pytest
import torch
from torch import Tensor

from golf.run.progress import Progress
from golf.settings.config import Config, ModelConfig
from golf.training.model.build import build_model
from golf.training.model.gpt import GPT
from golf.training.model.layers import Context
from golf.training.techniques.recurrence import Recurrence

IDS = torch.tensor([[3, 9, 9, 0, 17]])
ON, OFF = ("recurrence",), ()
APRIL = Recurrence(first=4, last=5, passes=3, enable_at=0.5)  # NUM_LOOPS=2 counts the additional passes
CASES = [
    (11, APRIL, [0, 1, 2, 3, 4, 5, 4, 5, 4, 5, 6, 7, 8, 9, 10]),
    (3, Recurrence(), [0, 1, 2, 0, 1, 2]),
    (3, Recurrence(passes=3), [0, 1, 2] * 3),
    (4, Recurrence(first=2), [0, 1, 2, 3, 2, 3]),
    (1, Recurrence(passes=2), [0, 0]),
]


def small_model(layers: int, *techniques: Recurrence, unet: bool = True) -> GPT:
    shape = ModelConfig(vocab_size=20, num_layers=layers, model_dim=8, num_heads=2, num_kv_heads=1, unet_skips=unet)
    shape.compute_dtype = "fp32"
    model = build_model(Config(model=shape, tech={t.name: t for t in techniques})).double()
    generator = torch.Generator().manual_seed(0)
    for param in model.parameters():
        param.data.normal_(0, 0.4, generator=generator)
    return model


def slow_hidden(model: GPT, order: list[int], unet: bool) -> np.ndarray:
    x = model.stream_start(IDS)
    context = Context(IDS, x, *model.rotary.tables(IDS.size(1), like=x), {}, ())
    half = len(order) // 2
    outputs: list[Tensor] = []
    for step, block in enumerate(order):
        if unet and half <= step < 2 * half:  # the first half's outputs come back last in, first out
            x = x + model.skip_weights[step - half] * outputs[2 * half - 1 - step]
        x = model.blocks[block](x, context)
        outputs.append(x)
    last = x.detach().numpy()
    return last / np.sqrt((last**2).mean(-1, keepdims=True) + np.finfo(np.float64).eps)


@pytest.mark.parametrize(("layers", "technique", "order"), CASES)
@pytest.mark.parametrize("unet", [True, False])
def test_the_looped_model_is_a_plain_loop_over_blocks(
    layers: int, technique: Recurrence, order: list[int], unet: bool
) -> None:
    model, visited = small_model(layers, technique, unet=unet), []
    expected = slow_hidden(model, order, unet)
    for i, block in enumerate(model.blocks):
        block.register_forward_pre_hook(lambda *_, i=i: visited.append(i))
    np.testing.assert_allclose(model.hidden(IDS, ON).detach().numpy(), expected, rtol=1e-7)
    assert visited == order
    if unet:
        assert len(model.skip_weights) == min(len(order) // 2, len(order) - len(order) // 2)


@pytest.mark.parametrize(("layers", "technique"), [(layers, technique) for layers, technique, _ in CASES])
def test_before_it_starts_the_model_is_the_plain_one(layers: int, technique: Recurrence) -> None:
    model, plain = small_model(layers, technique), small_model(layers)
    state = model.state_dict()
    state["skip_weights"] = state["skip_weights"][: layers // 2]
    plain.load_state_dict(state)
    assert torch.equal(model.logits(IDS, OFF), plain.logits(IDS))
    assert not torch.allclose(model.logits(IDS, ON), plain.logits(IDS))


def test_is_scored_as_it_ends() -> None:
    model = small_model(4, Recurrence(first=1, last=2, enable_at=0.5))
    assert torch.equal(model.logits(IDS), model.logits(IDS, ON))


def test_starts_at_its_fraction_of_the_run() -> None:
    assert [APRIL.is_on(Progress(0, fraction, 1.0)) for fraction in (0.0, 0.499, 0.5, 1.0)] == [
        False,
        False,
        True,
        True,
    ]
    assert Recurrence().is_on(Progress(0, 0.0, 1.0))
