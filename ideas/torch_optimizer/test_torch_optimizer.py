"""Steps of whole models against the class itself, and its state through a checkpoint."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import golf
from golf.run.progress import Progress
from golf.training.loop.switches import StepHooks

SHAPE = ["model=4l", "scale=laptop", "model.model_dim=32", "model.num_heads=2", "model.num_kv_heads=1"]
PLAIN = [*SHAPE, "model.compute_dtype=fp32", "optim.muon_dtype=fp32", "tech=[torch_optimizer]"]
EVERY = "tech.torch_optimizer.replaces=[embed,scalar,matrix]"


def set_gradients(model: nn.Module, step: int) -> None:
    generator = torch.Generator().manual_seed(step)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator).to(parameter.dtype)


@pytest.mark.parametrize("form", ["sharded", "parallel"])
@pytest.mark.parametrize(
    ("name", "arguments"),
    [("torch.optim.NAdam", "betas=(0.8,0.9)"), ("torch.optim.Adafactor", ""), ("torch.optim.SGD", "momentum=0.9")],
)
def test_steps_are_those_of_the_class(name: str, arguments: str, form: str) -> None:
    chosen = [EVERY, f"tech.torch_optimizer.optimizer={name}", f"optim.muon={form}", "optim.matrix_lr=0.01"]
    chosen += [f"tech.torch_optimizer.arguments='{arguments}'", "optim.muon_wd=0.1", "optim.adam_wd=0.2"]
    cfg = golf.compose([*PLAIN, *chosen])
    torch.manual_seed(0)
    model = golf.build_model(cfg)
    twin = copy.deepcopy(model)
    optimizer, o = golf.build_optimizer(cfg, model), cfg.optim
    rates = {"matrix": (o.matrix_lr, 0.1), "embed": (o.tied_embed_lr, 0.2), "scalar": (o.scalar_lr, 0.2)}
    named = dict(twin.named_parameters())
    groups = {
        "embed": ["tok_emb.weight"],
        "matrix": [n for n, p in named.items() if n.startswith("blocks.") and n.endswith(".weight") and p.ndim == 2],
    }
    groups["scalar"] = [n for n in named if n not in groups["embed"] + groups["matrix"]]
    kind, given = getattr(torch.optim, name.rpartition(".")[2]), eval(f"dict({arguments})")
    classes = [
        kind([named[n] for n in names], lr=rates[group][0] * 0.5, weight_decay=rates[group][1], **given)
        for group, names in groups.items()
    ]
    for step in range(3):
        optimizer.zero_grad()
        for each in (model, twin):
            set_gradients(each, step)
        optimizer.step(lr_multiplier=0.5)
        for one in classes:
            one.step()
    for (n, found), expected in zip(model.named_parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7, msg=n)


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_the_state_goes_through_a_checkpoint(dtype: str) -> None:
    cfg = golf.compose([*PLAIN, f"model.compute_dtype={dtype}", EVERY])
    model = golf.build_model(cfg)
    other = copy.deepcopy(model)
    first, second = golf.build_optimizer(cfg, model), golf.build_optimizer(cfg, other)
    for step in range(3):
        set_gradients(model, step)
        first.step()
    other.load_state_dict(model.state_dict())
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    for step in range(3, 5):
        for each, optimizer in ((model, first), (other, second)):
            set_gradients(each, step)
            optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


def test_the_plan_counts_what_is_kept() -> None:
    cfg = golf.compose([*PLAIN, EVERY, "tech.torch_optimizer.optimizer=torch.optim.Adam"])
    model = golf.build_model(cfg)
    optimizer = golf.build_optimizer(cfg, model)
    numbers = sum(p.numel() * p.element_size() for p in model.parameters())
    # Two moments; each parameter's count of steps has four bytes.
    assert sum(p.state_bytes() for p in optimizer.parts()) == 2 * numbers + 4 * len([*model.parameters()])


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("optimizer=torch.optim.Nowhere", "There is no optimizer torch.optim.Nowhere here"),
        ("optimizer=nowhere.Lion", "There is no optimizer nowhere.Lion here"),
        ("optimizer=torch.nn.Linear", "is no torch.optim.Optimizer"),
        ("optimizer=torch.optim.LBFGS", "evaluates the loss several times a step"),
        ("arguments='betas=(0.9'", "is no list like"),
        ("arguments='betas=open(1)'", "is no list like"),
        ("replaces=[]", "replaces is empty"),
        ("replaces=[all]", "replaces"),
    ],
)
def test_what_cannot_be_made_is_one_sentence(override: str, said: str) -> None:
    with pytest.raises(golf.GolfError, match=said):
        golf.compose([*PLAIN, f"tech.torch_optimizer.{override}"])


def test_arguments_that_the_class_does_not_have() -> None:
    cfg = golf.compose([*PLAIN, "tech.torch_optimizer.arguments='beta=1'"])
    with pytest.raises(golf.GolfError, match="NAdam refuses tech"):
        golf.build_optimizer(cfg, golf.build_model(cfg))


class Halving(torch.optim.SGD):
    """SGD that scores half of every weight, and trains in one mode alone."""

    training = False

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        assert self.training
        super().step()

    @torch.no_grad()
    def eval(self) -> None:
        self.training = False
        for param in self.param_groups[0]["params"]:
            param.mul_(0.5)

    @torch.no_grad()
    def train(self) -> None:
        if not self.training and self.param_groups[0].setdefault("begun", False):
            for param in self.param_groups[0]["params"]:
                param.mul_(2)
        self.training = self.param_groups[0]["begun"] = True


def test_what_an_optimizer_puts_in_place_for_scores_is_scored() -> None:
    name = f"{Halving.__module__}.{Halving.__name__}"
    cfg = golf.compose([*SHAPE, "tech=[torch_optimizer]", f"tech.torch_optimizer.optimizer={name}"])
    model = golf.build_model(cfg)
    optimizer, hooks = golf.build_optimizer(cfg, model), StepHooks(cfg, model)
    for step in range(2):
        set_gradients(model, step)
        optimizer.step()
        hooks.after_step(Progress(step, 0.1, 1.0))
        last = copy.deepcopy(model.state_dict())
        scored = hooks.final_weights()
        assert all(torch.equal(tensor, last[name]) for name, tensor in model.state_dict().items())
    assert torch.equal(scored["tok_emb.weight"], last["tok_emb.weight"])
    assert torch.equal(scored["blocks.0.attn_scale"], last["blocks.0.attn_scale"] / 2)
