"""Steps and averages against a loop in float64; what is scored is the average; its state survives a checkpoint."""

from __future__ import annotations

import copy

import pytest
import torch

import golf
from golf.lab.proofs.resume_proof import lost_by_resume
from golf.run.progress import Progress
from golf.settings.consistency import warnings
from golf.training.loop.switches import StepHooks
from ideas.schedule_free.schedule_free import ScheduleFreeAdamW

SHAPE = ["model=4l", "scale=laptop", "model.model_dim=32", "model.num_heads=2", "model.num_kv_heads=1"]
CHOSEN = [*SHAPE, "tech=[schedule_free]", "schedule.warmdown_iters=0", "schedule.warmdown_fraction=0"]


def test_steps_are_those_of_the_formula() -> None:
    torch.manual_seed(0)
    parameter = torch.nn.Parameter(torch.randn(3, 4))
    optimizer = ScheduleFreeAdamW([parameter], 0.1, 0.5, betas=(0.8, 0.9), eps=1e-6, rate=0.5)
    y = parameter.detach().double()
    z, x, v, total = y.clone(), y.clone(), torch.zeros_like(y), 0.0
    for step, multiplier in enumerate((0.5, 1.0, 1.0, 0.25), start=1):
        parameter.grad = torch.randn(3, 4)
        g, rate = parameter.grad.double(), 0.1 * 0.5 * multiplier
        v = 0.9 * v + 0.1 * g**2
        z = z - rate * (g / ((v / (1 - 0.9**step)).sqrt() + 1e-6) + 0.5 * y)
        total += rate**2
        x = (1 - rate**2 / total) * x + rate**2 / total * z
        y = 0.2 * z + 0.8 * x
        optimizer.step(multiplier)
        torch.testing.assert_close(parameter.detach().double(), y, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(optimizer.state["average"][0].double(), x, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("form", ["sharded", "parallel"])
def test_the_averages_are_scored_and_the_rest_is_the_newest(form: str) -> None:
    cfg = golf.compose([*CHOSEN, f"optim.muon={form}", "tech.schedule_free.replaces=[embed,matrix]"])
    model = golf.build_model(cfg)
    optimizer, hooks = golf.build_optimizer(cfg, model), StepHooks(cfg, model)
    for step in range(3):
        for parameter in model.parameters():
            parameter.grad = torch.randn(parameter.shape).to(parameter.dtype)
        optimizer.step()
        hooks.after_step(Progress(step, 0.1 * step, 1.0))
    scored, last = hooks.final_weights(), model.state_dict()
    differ = {name for name in last if not torch.equal(scored[name], last[name])}
    matrices = {name for name in last if name.startswith("blocks.") and last[name].ndim == 2 and "mix" not in name}
    assert differ == {"tok_emb.weight", *matrices}
    assert not hooks.idle_averages()


def test_a_run_resumes_with_its_averages() -> None:
    cfg = golf.compose([*CHOSEN, "model.compute_dtype=bf16"])
    assert lost_by_resume(cfg) == []
    twin = copy.deepcopy(cfg)
    assert golf.build_model(twin).state_dict().keys() == golf.build_model(cfg).state_dict().keys()


def test_a_warm_down_is_warned_of() -> None:
    cfg = golf.compose([*SHAPE, "tech=[schedule_free]"])
    assert any("schedule_free averages in place of a warm-down" in said for said in warnings(cfg))
    assert not any("schedule_free" in said for said in warnings(golf.compose(CHOSEN)))
