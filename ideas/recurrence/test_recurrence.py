"""The looped order of the blocks, its skips, and what the model is before the loop starts."""

import copy
import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from golf.errors import GolfError
from golf.run.progress import Progress
from golf.settings.config import Config, ModelConfig
from golf.training.loop.switches import Switches
from golf.training.model.build import build_model
from golf.training.model.gpt import GPT
from golf.training.model.layers import Context, RMSNorm
from golf.training.optim.groups import build_optimizer
from golf.training.techniques.xsa import XSA, exclude_own_value
from ideas.ln_scale.ln_scale import LNScale
from ideas.recurrence.recurrence import Recurrence
from ideas.skip_gates.skip_gates import SkipGates
from tests.support import compose

IDS = torch.tensor([[3, 9, 9, 0, 17]])
ON, OFF = ("recurrence",), ()
APRIL = Recurrence(first=4, last=5, passes=3, enable_at=0.5)  # NUM_LOOPS=2 counts the additional passes
CASES = [
    (11, APRIL, [0, 1, 2, 3, 4, 5, 4, 5, 4, 5, 6, 7, 8, 9, 10]),
    (3, Recurrence(), [0, 1, 2, 0, 1, 2]),
    (3, Recurrence(passes=3), [0, 1, 2] * 3),
    (4, Recurrence(first=2), [0, 1, 2, 3, 2, 3]),
    (1, Recurrence(passes=2), [0, 0]),
]


def small_model(layers: int, *techniques: Any, unet: bool = True) -> GPT:
    shape = ModelConfig(vocab_size=20, num_layers=layers, model_dim=8, num_heads=2, num_kv_heads=1, unet_skips=unet)
    shape.compute_dtype = "fp32"
    model = build_model(Config(model=shape, tech={t.name: t for t in techniques})).double()
    generator = torch.Generator().manual_seed(0)
    for param in model.parameters():
        param.data.normal_(0, 0.4, generator=generator)
    return model


def slow_hidden(model: GPT, order: list[int], unet: bool) -> np.ndarray:
    x = model.stream_start(IDS)
    context = Context(IDS, x, *model.rotary.tables(IDS.size(1), like=x), {}, ())
    half = len(order) // 2
    outputs: list[Tensor] = []
    for step, block in enumerate(order):
        if unet and half <= step < 2 * half:  # the first half's outputs come back last in, first out
            x = x + model.skip_weights[step - half] * outputs[2 * half - 1 - step]
        x = model.blocks[block](x, context)
        outputs.append(x)
    last = x.detach().numpy()
    return last / np.sqrt((last**2).mean(-1, keepdims=True) + np.finfo(np.float64).eps)


@pytest.mark.parametrize(("layers", "technique", "order"), CASES)
@pytest.mark.parametrize("unet", [True, False])
def test_the_looped_model_is_a_plain_loop_over_blocks(
    layers: int, technique: Recurrence, order: list[int], unet: bool
) -> None:
    model, visited = small_model(layers, technique, unet=unet), []
    expected = slow_hidden(model, order, unet)
    for i, block in enumerate(model.blocks):
        block.register_forward_pre_hook(lambda *_, i=i: visited.append(i))
    np.testing.assert_allclose(model.hidden(IDS, ON).detach().numpy(), expected, rtol=1e-7)
    assert visited == order
    if unet:
        assert len(model.skip_weights) == min(len(order) // 2, len(order) - len(order) // 2)


@pytest.mark.parametrize(("layers", "technique"), [(layers, technique) for layers, technique, _ in CASES])
def test_before_it_starts_the_model_is_the_plain_one(layers: int, technique: Recurrence) -> None:
    model, plain = small_model(layers, technique), small_model(layers)
    state = model.state_dict()
    state["skip_weights"] = state["skip_weights"][: layers // 2]
    plain.load_state_dict(state)
    assert torch.equal(model.logits(IDS, OFF), plain.logits(IDS))
    assert not torch.allclose(model.logits(IDS, ON), plain.logits(IDS))


def test_is_scored_as_it_ends() -> None:
    model = small_model(4, Recurrence(first=1, last=2, enable_at=0.5))
    assert torch.equal(model.logits(IDS), model.logits(IDS, ON))


def names(technique: Recurrence, *moments: tuple[int, float]) -> list[int]:
    """How many switches are on after each (step, fraction)."""
    return [len(technique.names_on(Progress(step, fraction, 1.0))) for step, fraction in moments]


def test_starts_at_its_fraction_of_the_run() -> None:
    assert names(APRIL, (0, 0.0), (9, 0.499), (9, 0.5), (9, 1.0)) == [0, 0, 1, 1]
    assert names(Recurrence(), (0, 0.0)) == [1]


def test_starts_at_a_step_or_in_two_phases() -> None:
    assert names(Recurrence(enable_at_step=3), (2, 0.9), (3, 0.0)) == [0, 1]
    phases = Recurrence(first=1, last=2, passes=3, enable_at=0.5, full_at=0.65)
    assert names(phases, (0, 0.4), (0, 0.5), (0, 0.64), (0, 0.65)) == [0, 1, 1, 2]
    model = small_model(5, phases)
    both = phases.switch_names()
    for active, order in (
        ((), [0, 1, 2, 3, 4]),
        (both[:1], [0, 1, 2, 1, 2, 3, 4]),
        (both, [0, 1, 2, 1, 2, 1, 2, 3, 4]),
    ):
        expected = slow_hidden(model, order, unet=True)
        np.testing.assert_allclose(model.hidden(IDS, active).detach().numpy(), expected, rtol=1e-7)
    assert len(model.skip_weights) == 4 and model.active_in_scoring == both


def test_every_phase_is_compiled_and_none_before_the_one_it_follows() -> None:
    cfg = compose(["scale=laptop", "model.num_layers=5", "tech=[recurrence,soft_round]", *TWO_PHASES])
    assert sorted([(), *Switches(cfg).later_sets()]) == sorted([*LOOPS, *((*names, "soft_round") for names in LOOPS)])


TWO_PHASES = [f"tech.recurrence.{s}" for s in ("last=2", "passes=3", "enable_at=0.5", "full_at=0.7")]
LOOPS: list[tuple[str, ...]] = [(), ("recurrence",), ("recurrence", "recurrence_full")]
LATE = Recurrence(first=1, last=2, passes=3, enable_at=0.5, late_decay=False)


@pytest.mark.parametrize("gated", [False, True])
def test_late_rows_stay_until_they_are_used(gated: bool) -> None:
    """The same function as with one parameter; Adam does not decay the rows apart before the loop is on."""
    gates = [SkipGates()] if gated else []
    apart, together = small_model(5, LATE, *gates), small_model(5, dataclasses.replace(LATE, late_decay=True), *gates)
    assert apart.skip_weights.shape == apart.late_skip_weights.shape == (2, 8)
    state = {name: p for name, p in apart.state_dict().items() if not name.startswith("late_")}
    for name in ["skip_weights", *(["skip_gates"] if gated else [])]:
        state[name] = torch.cat([state[name], apart.get_parameter(f"late_{name}")])
    together.load_state_dict(state)
    assert torch.equal(apart.logits(IDS, ON), together.logits(IDS, ON))
    cfg = Config(model=apart.cfg, tech={"recurrence": LATE, **{t.name: t for t in gates}})
    cfg.optim.adam_wd, start = 0.5, apart.late_skip_weights.detach().clone()
    optimizer = build_optimizer(cfg, apart)
    for active, moves in ((OFF, False), (ON, True)):
        optimizer.zero_grad()
        apart(IDS, IDS, active).backward()
        optimizer.step()
        assert torch.equal(apart.late_skip_weights, start) != moves


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_visits_have_their_own_controls(compiled: bool) -> None:
    """Record 03-31: the looped order as blocks of its own, with the matrices of the layers that it visits."""
    recurrence = Recurrence(first=1, last=2, controls="by_visit")
    model = small_model(4, recurrence, LNScale(), XSA(last_n=5))
    plain = small_model(4, LNScale(), XSA(last_n=3))
    order = [0, 1, 2, 1, 2, 3]
    assert [name for name in model.state_dict() if name.startswith("late_")] == [
        f"late_controls.{i}.{name}" for i in (0, 1) for name in ("attn_scale", "mlp_scale", "resid_mix", "attn.q_gain")
    ]
    slow = copy.deepcopy(model)
    slow.blocks = torch.nn.ModuleList(copy.deepcopy(model.blocks[layer]) for layer in order)
    for place, (block, own) in enumerate(zip(slow.blocks, model.controls, strict=True)):
        for name in ("attn_scale", "mlp_scale", "resid_mix", "attn.q_gain"):
            block.get_parameter(name).data.copy_(own.get_parameter(name))
        block.attn_norm = block.mlp_norm = RMSNorm(factor=(place + 1) ** -0.5)
        block.attn.output_hooks["exclude"] = [exclude_own_value] if place > 0 else []
    # The eager backend traces the graph and needs no compiler.
    hidden = torch.compile(model.hidden, backend="eager", fullgraph=True, dynamic=False) if compiled else model.hidden
    expected = slow_hidden(slow, list(range(6)), True)
    np.testing.assert_allclose(hidden(IDS, ON).detach().numpy(), expected, rtol=1e-6)
    state = {name: p for name, p in model.state_dict().items() if name in plain.state_dict()}
    plain.load_state_dict({**state, "skip_weights": state["skip_weights"][:2]})
    torch.testing.assert_close(model.hidden(IDS, OFF), plain.hidden(IDS))


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"last": 4}, "runs layers 0 to 4, but there are 0 to 3"),
        ({"enable_at": 0.5, "enable_at_step": 3}, "enable_at_step or at the fraction enable_at: give one"),
        ({"full_at": 0.5}, "needs at least 3 passes"),
        ({"passes": 10**6}, "passes=1000000 has to be at least 2 and at most 100"),
        ({"passes": 3, "enable_at": 0.6, "full_at": 0.5}, "a fraction after enable_at=0.6"),
        ({"skip_rows": "omitted", "late_decay": "false"}, "late_decay=false has no late rows"),
        ({"controls": "by_visit", "gate": "true"}, "no parameters of gated_attention for the further visits"),
    ],
)
def test_what_cannot_be_is_one_sentence(settings: dict[str, object], part: str) -> None:
    tech = "tech=[gated_attention,recurrence]" if settings.pop("gate", None) else "tech=[recurrence]"
    overrides = [f"tech.recurrence.{key}={value}" for key, value in settings.items()]
    with pytest.raises(GolfError) as refused:
        compose(["scale=laptop", "model=4l", tech, *overrides])
    assert part in str(refused.value)
