"""Compiled models compute what eager ones do, in one graph, and do not compile again."""

import dataclasses
import shutil
from pathlib import Path

import pytest
import torch
import torch._inductor.config

from golf.lab.corpora.own_text import OwnDataset
from golf.run.result import read_result
from golf.settings.config import Config, LaunchConfig, ModelConfig
from golf.training.loop.steps import TrainStep
from golf.training.loop.warmup import synthetic_batch
from golf.training.model.build import build_model, compile_for_scoring, compile_for_training
from golf.training.model.gpt import GPT
from golf.training.optim.groups import build_optimizer
from golf.training.ranks import Ranks
from tests.support import golf_train, tiny_overrides

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile on a CPU needs g++"),
]
SMALL = ModelConfig(vocab_size=50, num_layers=2, model_dim=16, num_heads=2, num_kv_heads=1, compute_dtype="fp32")


@pytest.fixture(autouse=True)
def forget_compiled_code() -> None:
    torch._dynamo.reset()


@pytest.mark.parametrize(("mode", "dtype"), [("blocks", "fp32"), ("full", "fp32"), ("blocks", "bf16")])
def test_losses_and_gradients_equal_eager(mode: str, dtype: str) -> None:
    torch.manual_seed(0)
    cfg, tolerance = dataclasses.replace(SMALL, compute_dtype=dtype), {"fp32": 1e-5, "bf16": 2e-2}[dtype]
    eager, compiled = GPT(cfg), GPT(cfg)
    for p in eager.parameters():
        p.data += 0.2 * torch.randn_like(p)
    compiled.load_state_dict(eager.state_dict())
    compile_for_training(compiled, LaunchConfig(compile=mode))
    ids, targets = torch.randint(50, (2, 16)), torch.randint(50, (2, 16))
    losses = [model(ids, targets) for model in (eager, compiled)]
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=tolerance)
    for loss in losses:
        loss.backward()
    for p, q in zip(eager.parameters(), compiled.parameters(), strict=True):
        assert p.grad is not None and q.grad is not None
        assert (q.grad - p.grad).norm() <= 10 * tolerance * p.grad.norm()
    assert list(compiled.state_dict()) == list(eager.state_dict())


@pytest.mark.parametrize("mode", ["blocks", "full"])
def test_compiled_training_keeps_no_static_memory(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA graphs would hand out gradients in memory that the next micro-batch writes. A CPU has none."""
    asked: list[dict[str, object]] = []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda _, **options: asked.append(options))
    compile_for_training(GPT(SMALL), LaunchConfig(compile=mode))
    assert asked == [{"dynamic": False, "fullgraph": True}] * (2 if mode == "blocks" else 1)
    assert not torch._inductor.config.triton.cudagraphs


@pytest.mark.parametrize("mode", ["blocks", "full"])
def test_scoring_equals_eager(mode: str) -> None:
    model = GPT(SMALL).eval()
    ids, targets = torch.randint(50, (2, 16)), torch.randint(50, (2, 16))
    with torch.no_grad():
        expected = model.token_losses(ids, targets)
        torch.testing.assert_close(
            compile_for_scoring(model, LaunchConfig(compile=mode))(ids, targets), expected, atol=1e-5, rtol=1e-4
        )


@pytest.mark.parametrize("mode", ["blocks", "full"])
def test_steps_after_the_first_compile_nothing(mode: str, tiny_cfg: Config, graphs_alone: None) -> None:
    model = build_model(tiny_cfg)
    compile_for_training(model, LaunchConfig(compile=mode))
    step = TrainStep(tiny_cfg, model, build_optimizer(tiny_cfg, model), Ranks())
    step(lambda: synthetic_batch(tiny_cfg), 1.0, 0.9)
    with torch.compiler.set_stance("fail_on_recompile"):
        for _ in range(3):
            step(lambda: synthetic_batch(tiny_cfg), 0.5, 0.95)


def test_a_compiled_run_scores_like_an_eager_one(tiny: OwnDataset, runs: Path) -> None:
    for mode in ("full", "off"):
        done = golf_train(*tiny_overrides(tiny), "model.num_layers=2", f"launch.compile={mode}")
        assert done.returncode == 0, done.stderr
    first, second = (read_result(path) for path in runs.glob("*/seed*/result.json"))
    assert first.variant_id == second.variant_id
    assert first.post_quant and second.post_quant
    assert first.post_quant.val_bpb == pytest.approx(second.post_quant.val_bpb, rel=2e-3)
