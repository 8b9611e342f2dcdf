"""Losses of ideas on one rank and on two: the same weights at the end."""

from pathlib import Path

import pytest
import safetensors.torch
import torch

from tests.support import OwnDataset, further, golf_main, tiny_overrides

EXACT = ("model.compute_dtype=fp32", "optim.muon_dtype=fp32", "schedule.iterations=6", "data.micro_batches=4")


@pytest.mark.slow
@pytest.mark.parametrize(
    "tech",
    [
        further("z_loss,multi_token,distillation,focal_loss"),
        further("label_smoothing,multi_token,distillation"),
        "schedule_free",
    ],
)
def test_two_ranks_train_as_one_does(tech: str, tiny: OwnDataset, runs: Path) -> None:
    for nproc in (1, 2):
        overrides = [f"tech=[{tech}]", *EXACT, f"launch.nproc={nproc}", f"name=ranks{nproc}"]
        done = golf_main(*tiny_overrides(tiny), *overrides)
        assert done.returncode == 0, done.stderr
    one, two = (
        safetensors.torch.load_file(next(runs.glob(f"ranks{n}-*/seed*")) / "final_model.safetensors") for n in (1, 2)
    )
    assert not any("training_only" in name for name in one)
    for name, tensor in one.items():
        torch.testing.assert_close(two[name].float(), tensor.float(), rtol=1e-4, atol=1e-5, msg=name)
