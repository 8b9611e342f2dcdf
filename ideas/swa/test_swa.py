"""The mean of exactly the snapshots that the learning rate and the grid of steps allow."""

import pytest
import torch

from golf.run.progress import Progress
from golf.settings.config import Config, ModelConfig
from golf.training.model.build import build_model
from golf.training.model.gpt import GPT
from ideas.swa.swa import SWA

STEPS = 16


def small_model(dtype: str = "fp32") -> GPT:
    shape = ModelConfig(vocab_size=20, num_layers=2, model_dim=8, num_heads=2, num_kv_heads=1, compute_dtype=dtype)
    return build_model(Config(model=shape))


def fill(model: GPT, value: float) -> None:
    with torch.no_grad():
        for param in model.parameters():
            param.fill_(value)


@pytest.mark.parametrize(
    ("start", "every", "taken"),
    [(0.5, 3, [9, 12, 15]), (0.5, 1, [9, 10, 11, 12, 13, 14, 15, 16]), (0.25, 2, [14, 16]), (1.0, 7, [7, 14])],
)
def test_mean_of_every_kth_step_below_the_multiplier(start: float, every: int, taken: list[int]) -> None:
    model = small_model()
    averager = SWA(start=start, every=every).averager(model)
    for step in range(1, STEPS + 1):
        fill(model, step**2 / 8)
        averager.update(Progress(step, step / STEPS, 1 - step / STEPS))  # at step 8 the multiplier is one half
    assert averager.updates == len(taken)
    mean = sum(step**2 / 8 for step in taken) / len(taken)
    found = averager.weights()
    assert found.keys() == model.state_dict().keys()
    for tensor in found.values():
        torch.testing.assert_close(tensor, torch.full_like(tensor, mean))


def test_bf16_snapshots_are_summed_in_float32() -> None:
    model = small_model("bf16")
    fill(model, 1.0078125)
    averager = SWA(every=1).averager(model)
    for step in range(400):  # in bf16 adding ones ends at 256
        averager.update(Progress(step, 1.0, 0.0))
    found = averager.weights()["tok_emb.weight"]
    assert found.dtype == torch.bfloat16 and torch.equal(found, model.tok_emb.weight)


def test_without_a_snapshot_there_is_no_average() -> None:
    model = small_model()
    averager = SWA(start=0.5, every=50).averager(model)
    averager.update(Progress(50, 0.0, 0.5))  # not below
    averager.update(Progress(51, 1.0, 0.0))  # not on the grid
    assert averager.updates == 0
    assert all(torch.equal(tensor, model.state_dict()[name]) for name, tensor in averager.weights().items())
