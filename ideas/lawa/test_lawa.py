"""The mean is that of the last snapshots and of nothing else."""

import torch

from golf.run.progress import Progress
from golf.settings.config import Config, ModelConfig
from golf.training.model.build import build_model
from ideas.lawa.lawa import LAWA


def test_mean_of_the_last_snapshots_on_the_grid() -> None:
    cfg = Config(model=ModelConfig(vocab_size=32, num_layers=2, model_dim=8, num_heads=2, num_kv_heads=2))
    model = build_model(cfg)
    averager = LAWA(count=3, every=2).averager(model)
    seen = []
    for step in range(1, 12):
        with torch.no_grad():
            model.skip_weights.normal_(generator=torch.Generator().manual_seed(step))
        averager.update(Progress(step, 0.0, 1.0))
        seen.append(model.skip_weights.detach().clone())
    expected = (seen[5] + seen[7] + seen[9]) / 3  # after steps 6, 8 and 10
    torch.testing.assert_close(averager.weights()["skip_weights"], expected)
    assert averager.updates == 5


def test_without_a_snapshot_the_weights_stay_and_nothing_was_averaged() -> None:
    model = build_model(
        Config(model=ModelConfig(vocab_size=32, num_layers=2, model_dim=8, num_heads=2, num_kv_heads=2))
    )
    averager = LAWA(every=100).averager(model)
    averager.update(Progress(1, 0.0, 1.0))
    assert averager.updates == 0
    assert torch.equal(averager.weights()["skip_weights"], model.skip_weights)
