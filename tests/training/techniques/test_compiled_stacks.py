"""Stacks of techniques compile to one graph, compute what eager ones do, and switch late without compiling again."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters

from golf.lab.corpora.own_text import OwnDataset
from golf.launch.launcher import train_and_score
from golf.registry import TECHNIQUE_TYPES, technique_types
from golf.run.progress import Progress
from golf.run.result import OK, read_result
from golf.settings.config import Config, LaunchConfig
from golf.training.loop.proving import proving_warm_up
from golf.training.loop.state import TrainState
from golf.training.loop.steps import TrainStep
from golf.training.loop.switches import StepHooks, Switches, switch_names
from golf.training.loop.warmup import synthetic_batch
from golf.training.model.build import build_model, compile_for_training
from golf.training.model.gpt import GPT
from golf.training.optim.groups import build_optimizer
from golf.training.ranks import Ranks
from golf.training.techniques.base import Technique, technique
from tests.support import (
    assert_compiled_is_eager,
    compatible_stacks,
    compose,
    further,
    golf_main,
    metrics,
    only_run,
    tiny_overrides,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile on a CPU needs g++"),
]
TYPES: dict[str, Any] = {**technique_types()}
# An average over training compiles nothing, and masked diffusion refuses to be one graph.
STACKS = compatible_stacks(
    name for name, kind in TYPES.items() if kind.averager is Technique.averager and name != "masked_diffusion"
)
LATE = compatible_stacks(name for name, kind in TYPES.items() if kind.is_switch)


@pytest.fixture(autouse=True)
def forget_compiled_code() -> None:
    torch._dynamo.reset()
    counters.clear()


def selected(stack: list[str]) -> list[str]:
    """Overrides that select techniques, and switch on in the middle of the run what can start there."""
    late = [f"tech.{name}.enable_at=0.5" for name in stack if "enable_at" in TYPES[name].__dataclass_fields__]
    # The small model has four layers, of which no_attention takes the first.
    lanes = ["tech.parallel_lanes.first=-3"] if "parallel_lanes" in stack else []
    # Values are added where gated_deltanet and mamba2 leave attention.
    values = ["tech.value_embed.layers=[3]"] if {"value_embed", "gated_deltanet"} <= {*stack} else []
    return [f"tech=[{','.join(stack)}]", *late, *lanes, *values]


@pytest.mark.parametrize("stack", [STACKS[0], *map(further, STACKS[1:])])
def test_one_graph_that_equals_eager(stack: list[str], tiny: OwnDataset) -> None:
    cfg = compose([*tiny_overrides(tiny), *selected(stack)])
    assert_compiled_is_eager(cfg, "full")
    assert counters["stats"]["unique_graphs"] == 1 and not counters["graph_break"]


@pytest.mark.parametrize(("stack", "mode"), [(LATE[0], "blocks"), *(further(stack, "full") for stack in LATE[1:])])
def test_switches_are_compiled_in_the_warm_up(
    stack: list[str], mode: str, tiny: OwnDataset, graphs_alone: None
) -> None:
    cfg = compose([*tiny_overrides(tiny), *selected(stack)])
    cfg.launch.compile = mode
    model = build_model(cfg)
    compile_for_training(model, LaunchConfig(compile=mode))
    step = TrainStep(cfg, model, build_optimizer(cfg, model), Ranks())
    switches, hooks = Switches(cfg), StepHooks(cfg, model)
    assert proving_warm_up(cfg, TrainState(step, switches, hooks), lambda _: None) == []
    losses = {}
    with torch.compiler.set_stance("fail_on_recompile"):
        for progress in (Progress(0, 0.1, 1.0), Progress(1, 0.6, 1.0), Progress(2, 0.9, 0.3), Progress(3, 0.95, 0.1)):
            hooks.begin_step(progress)
            active = switches.advance(progress)
            losses[active] = step(lambda: synthetic_batch(cfg), 0.0, 0.9, active).item()
    assert len(losses) > 1 and list(losses)[-1] == switch_names(cfg)


@pytest.mark.exhaustive
def test_a_compiled_run_switches_and_reports_no_recompilation(tiny: OwnDataset, runs: Path, graphs_alone: None) -> None:
    late = selected(["recurrence", "soft_round"])
    done = golf_main(*tiny_overrides(tiny), *late, "schedule.warmdown_iters=4", "launch.compile=blocks")
    assert done.returncode == 0, done.stderr
    result = read_result(only_run(runs) / "result.json")
    assert result.state == OK and not any("recompiled" in warning for warning in result.warnings)
    assert [e["name"] for e in metrics(only_run(runs), "switched_on")] == ["recurrence", "soft_round"]


def test_a_graph_compiled_while_the_clock_runs_is_reported(tiny: OwnDataset, runs: Path, graphs_alone: None) -> None:
    """A number that changes with the step, kept as an attribute instead of in a buffer."""
    before = dict(TECHNIQUE_TYPES)

    @technique("annealed_attribute")
    @dataclass
    class AnnealedAttribute(Technique):
        source = "planted"

        def edit_model(self, model: GPT, cfg: Config) -> None:
            for block in model.blocks:
                block.mlp.sharpness = 1.5
                block.mlp.activation = Sharpened(block.mlp)

        def before_step(self, model: GPT, progress: Progress) -> None:
            for block in model.blocks:
                block.mlp.sharpness = 1.5 + (progress.step > 3)

    try:
        cfg = compose([*tiny_overrides(tiny), "launch.compile=full"])
        cfg.tech["annealed_attribute"] = AnnealedAttribute()
        result, _ = train_and_score(cfg)
    finally:
        TECHNIQUE_TYPES.clear()
        TECHNIQUE_TYPES.update(before)
    assert result.state == OK
    (warning,) = result.warnings
    assert warning.startswith("recompiled while the clock ran: forward:") and "sharpness" in warning


@dataclass
class Sharpened:
    mlp: torch.nn.Module

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.mlp.sharpness).relu().square()
