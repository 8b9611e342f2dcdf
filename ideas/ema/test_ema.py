"""The moving average in closed form, and its precision."""

import pytest
import torch

from golf.run.progress import Progress
from golf.settings.config import Config, ModelConfig
from golf.training.model.build import build_model
from golf.training.model.gpt import GPT
from ideas.ema.ema import EMA

ANY = Progress(1, 0.0, 1.0)


def small_model(dtype: str = "fp32") -> GPT:
    shape = ModelConfig(vocab_size=20, num_layers=2, model_dim=8, num_heads=2, num_kv_heads=1, compute_dtype=dtype)
    return build_model(Config(model=shape))


def fill(model: GPT, value: float) -> None:
    with torch.no_grad():
        for param in model.parameters():
            param.fill_(value)


@pytest.mark.parametrize("decay", [0.0, 0.9, 0.997])
@pytest.mark.parametrize("updates", [1, 7, 40])
def test_average_is_the_geometric_sum_of_all_weights_seen(decay: float, updates: int) -> None:
    model = small_model()
    fill(model, 0.7)
    averager = EMA(decay=decay).averager(model)
    values = [((37 * n) % 11 - 5) / 4 for n in range(updates)]
    for value in values:
        fill(model, value)
        averager.update(ANY)
    expected = decay**updates * 0.7
    expected += (1 - decay) * sum(decay ** (updates - 1 - n) * value for n, value in enumerate(values))
    assert averager.updates == updates
    found = averager.weights()
    assert found.keys() == model.state_dict().keys()
    for tensor in found.values():
        torch.testing.assert_close(tensor, torch.full_like(tensor, expected), atol=1e-6, rtol=1e-5)


def test_the_start_is_not_corrected_for() -> None:
    model = small_model()
    fill(model, 0.0)
    averager = EMA(decay=0.75).averager(model)
    fill(model, 1.0)
    averager.update(ANY)
    averager.update(ANY)
    assert averager.weights()["skip_weights"][0, 0].item() == 1 - 0.75**2  # with a correction it would be 1


def test_bf16_weights_are_averaged_in_float32_and_come_back_as_bf16() -> None:
    model = small_model("bf16")
    fill(model, 1.0)
    averager = EMA(decay=0.997).averager(model)
    fill(model, 1.0078125)  # the next number in bf16: 0.3 % of the way there is nothing at that precision
    for _ in range(300):
        averager.update(ANY)
    found = averager.weights()["tok_emb.weight"]
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, model.tok_emb.weight)  # 59 % of the way, so that it rounds up


def test_the_average_does_not_move_with_the_weights_that_it_was_taken_from() -> None:
    model = small_model()
    averager = EMA().averager(model)
    before = averager.weights()["tok_emb.weight"].clone()
    fill(model, 3.0)
    assert torch.equal(averager.weights()["tok_emb.weight"], before)
