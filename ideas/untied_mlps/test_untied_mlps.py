"""MLPs of the repeated visits: which visit uses which, and that each starts as the layer's when the loop does."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from golf.errors import GolfError
from golf.lab.corpora.own_text import OwnDataset
from golf.launch.launcher import train_and_score
from golf.run.result import OK
from golf.settings.config import Config, ModelConfig
from golf.training.loop.switches import StepHooks
from golf.training.model.build import build_model
from golf.training.model.gpt import GPT
from golf.training.optim.groups import build_optimizer
from ideas.recurrence.recurrence import Recurrence
from ideas.swiglu.swiglu import SwiGLU
from ideas.untied_mlps.untied_mlps import UntiedMLPs
from tests.support import compose, metrics, only_run, refusal, tiny_overrides

IDS = torch.tensor([[3, 9, 9, 0, 17, 4]])
ON = ("recurrence",)
LOOP = Recurrence(first=1, last=2, passes=3, enable_at=0.5)  # 0 1 2 1 2 1 2 3


def config(*techniques: Any, layers: int = 4) -> Config:
    shape = ModelConfig(vocab_size=20, num_layers=layers, model_dim=8, num_heads=2, num_kv_heads=1)
    shape.compute_dtype = "fp32"
    cfg = Config(model=shape, tech={t.name: t for t in techniques})
    cfg.optim.muon_dtype = "fp32"
    return cfg


def shaken(model: GPT) -> GPT:
    generator = torch.Generator().manual_seed(0)
    for param in model.parameters():
        param.data.normal_(0, 0.4, generator=generator)
    return model


@pytest.mark.parametrize("controls", ["by_layer", "by_visit"])
@pytest.mark.parametrize("more", [[], [SwiGLU()]])
def test_each_visit_is_a_layer_of_a_deeper_model(controls: str, more: list[Any]) -> None:
    """The looped model equals one with a layer for every visit, which has the layer's attention and its own MLP."""
    loop = dataclasses.replace(LOOP, controls=controls)
    model = shaken(build_model(config(loop, UntiedMLPs(), *more)).double())
    deep = build_model(config(*more, layers=8)).double()
    own = model.state_dict()
    expected = {name: tensor for name, tensor in own.items() if not name.startswith(("blocks.", "late_"))}
    for place, (layer, repeat) in enumerate([(0, 0), (1, 0), (2, 0), (1, 1), (2, 1), (1, 2), (2, 2), (3, 0)]):
        gains = [f"blocks.{layer}."] if controls == "by_layer" else [f"blocks.{place}.", f"late_controls.{place - 4}."]
        mlp = f"further_mlps.{repeat - 1}." if repeat else "mlp."
        for name in deep.blocks[place].state_dict():
            sources = [f"blocks.{layer}."] if name.endswith(".weight") else gains
            source = name.replace("mlp.", mlp) if name.startswith("mlp.") else name
            (tensor,) = (own[prefix + source] for prefix in sources if prefix + source in own)
            expected[f"blocks.{place}.{name}"] = tensor
    deep.load_state_dict(expected)
    torch.testing.assert_close(model.logits(IDS, ON), deep.logits(IDS))
    assert sum("further_mlps" in name for name in own) == 4 * (3 if more else 2)


@pytest.mark.parametrize("muon", ["sharded", "parallel"])
def test_they_start_as_the_layers_mlp_when_the_loop_starts(muon: str) -> None:
    cfg = config(LOOP, UntiedMLPs())
    cfg.optim.muon, cfg.optim.muon_wd = muon, 0.1
    model = shaken(build_model(cfg))
    hooks, optimizer = StepHooks(cfg, model), build_optimizer(cfg, model)
    block, before = model.blocks[1], ()
    for active in ((), ON, ON):
        hooks.switch(before, active)
        for further in block.further_mlps:
            # Equal as the loop starts, and apart from its first step on.
            assert torch.equal(further.fc.weight, block.mlp.fc.weight) == (active != before)
        optimizer.zero_grad()
        model(IDS, IDS.roll(1), active).backward()
        optimizer.step()
        before = active


def test_a_loop_from_the_first_step_on_starts_with_copies() -> None:
    model = build_model(config(Recurrence(first=1, last=2), UntiedMLPs()))
    assert torch.equal(model.blocks[1].further_mlps[0].fc.weight, model.blocks[1].mlp.fc.weight)
    assert [len(block.further_mlps) for block in model.blocks] == [0, 1, 1, 0]


def test_they_need_a_loop_that_starts_once() -> None:
    assert "needs recurrence" in refusal("scale=laptop", "tech=[untied_mlps]")
    phases = Recurrence(first=1, last=2, passes=3, enable_at=0.2, full_at=0.5)
    with pytest.raises(GolfError, match=r"full_at=null"):
        UntiedMLPs().check(config(phases, UntiedMLPs()))


@pytest.mark.slow
def test_a_run_whose_loop_starts_late_ends_well(tiny: OwnDataset, runs: Path) -> None:
    """Proofs, warm-up, the copy at step 3, Hessians of all MLPs, formats by sensitivity, and scores of the file."""
    loop = ["tech=[recurrence,untied_mlps,no_attention]", "tech.recurrence={first:1,last:2,enable_at_step:3}"]
    coarse = ["quant=gptq_int6", "quant.mlp.format=int5", "quant.small_numel=64", "quant.sensitive.top=3"]
    own = [o for o in tiny_overrides(tiny) if not o.startswith("schedule.iterations")]
    few = ["schedule.iterations=6", "schedule.warmup_steps=1", "quant.calibration.tokens=512"]
    result, _ = train_and_score(compose([*own, *loop, *coarse, *few]))
    assert result.state == OK and result.steps == 6, result.reason
    assert [event["name"] for event in metrics(only_run(runs), "switched_on")] == ["recurrence"]
