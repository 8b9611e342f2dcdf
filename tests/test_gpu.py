"""What only a GPU can show; skipped without one."""

from pathlib import Path

import pytest
import torch

from golf.run.result import read_result
from golf.training.data.own_text import OwnDataset
from tests.support import golf_train, only_run, tiny_overrides

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


@pytest.mark.parametrize("mode", ["off", "blocks", "full"])
def test_main_job_on_a_gpu(mode: str, tiny: OwnDataset, runs: Path) -> None:
    settings = ["launch.device=cuda", "model.compute_dtype=bf16", "optim.muon_dtype=bf16", "eval.dtype=bf16"]
    done = golf_train(*tiny_overrides(tiny), *settings, "model.model_dim=64", f"launch.compile={mode}")
    assert done.returncode == 0, done.stderr
    result = read_result(only_run(runs) / "result.json")
    assert result.state == "ok" and result.post_quant and result.post_quant.val_loss < 6.0


def test_gpu_and_cpu_agree(tiny: OwnDataset, runs: Path) -> None:
    for device in ("cpu", "cuda"):
        assert golf_train(*tiny_overrides(tiny), f"launch.device={device}").returncode == 0
    first, second = (read_result(p / "result.json") for p in sorted(runs.glob("*/seed*")))
    assert first.post_quant and second.post_quant
    assert first.post_quant.val_loss == pytest.approx(second.post_quant.val_loss, rel=5e-3)
