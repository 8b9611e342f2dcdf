"""Gated skips against a plain loop over the blocks with the blend written out."""

import numpy as np
import pytest
import torch

from golf.training.model.gpt import GPT
from golf.training.model.layers import Context
from ideas.recurrence.recurrence import Recurrence
from ideas.skip_gates.skip_gates import SkipGates
from tests.training.techniques.small import small_model

IDS = torch.tensor([[3, 9, 9, 0, 17]])


def slow_hidden(model: GPT, order: list[int]) -> np.ndarray:
    x = model.stream_start(IDS)
    context = Context(IDS, x, *model.rotary.tables(IDS.size(1), like=x), {}, ())
    half = len(order) // 2
    kept = []
    for block in order[:half]:
        x = model.blocks[block](x, context)
        kept.append(x)
    for i, block in enumerate(order[half:]):
        if i < half:
            gate = 1 / (1 + torch.exp(-model.skip_gates[i]))
            x = gate * x + (1 - gate) * model.skip_weights[i] * kept[half - 1 - i]
        x = model.blocks[block](x, context)
    last = x.detach().numpy()
    return last / np.sqrt((last**2).mean(-1, keepdims=True) + np.finfo(np.float64).eps)


def test_a_join_blends_the_stream_with_the_weighted_skip() -> None:
    model = small_model(SkipGates(), layers=5)
    np.testing.assert_allclose(model.hidden(IDS).detach().numpy(), slow_hidden(model, [0, 1, 2, 3, 4]), rtol=1e-7)


def test_there_is_a_gate_for_every_skip_of_a_looped_stack() -> None:
    model = small_model(SkipGates(), Recurrence(first=1, last=2, passes=3), layers=5)
    assert model.skip_gates.shape == (4, 16)
    order = [0, 1, 2, 1, 2, 1, 2, 3, 4]
    np.testing.assert_allclose(model.hidden(IDS).detach().numpy(), slow_hidden(model, order), rtol=1e-7)


@pytest.mark.parametrize(("gate", "of_stream"), [(0.0, 0.5), (50.0, 1.0), (-50.0, 0.0)])
def test_a_gate_goes_from_the_skip_alone_to_the_stream_alone_and_starts_halfway(gate: float, of_stream: float) -> None:
    model = small_model(SkipGates(), layers=5, shaken=False)
    assert model.skip_gates.abs().max() == 0
    model.skip_gates.data.fill_(gate)
    x, stored = torch.full((1, 1, 16), 2.0).double(), torch.full((1, 1, 16), 10.0).double()
    joined = model.join_skip(model, x, stored, 1)
    torch.testing.assert_close(joined, torch.full_like(x, 2.0 * of_stream + 10.0 * (1 - of_stream)))
