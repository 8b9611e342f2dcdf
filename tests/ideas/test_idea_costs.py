"""Operations and memory that a plan gives to modules of ideas, against counts by hand."""

from collections.abc import Callable
from pathlib import Path

import pytest

import golf
from golf.idea_folders import use_ideas
from golf.lab.plan.flops import PassFlops, flops_per_scored_token, pass_flops
from golf.lab.plan.lines import as_dict, work
from golf.lab.plan.memory import cpu_bytes
from golf.lab.plan.plan import make_plan
from golf.settings.config import mlp_hidden
from golf.training.model.build import shapeless_model

DIM, HEADS, KV, TOKENS = 32, 2, 1, 64
SMALL = ["model=4l", "scale=laptop", f"model.model_dim={DIM}", f"model.num_heads={HEADS}", f"model.num_kv_heads={KV}"]
SMALL += [f"data.train_seq_len={TOKENS}", "data.train_batch_tokens=1024", "launch.device=cpu", "quant.codec=zlib"]
SAYING = """
from dataclasses import dataclass
from torch import Tensor, nn
from golf.training.model.slots import set_slot
from golf.training.techniques.base import Technique, technique

class Odd(nn.Module):
    def forward(self, x: Tensor, active: tuple[str, ...] = ()) -> Tensor:
        if x.sum().item() > 1e9:
            return x
        return x * 0.5
{methods}

@technique("odd")
@dataclass
class OddMLP(Technique):
    source = "a test"

    def edit_model(self, model, cfg) -> None:
        set_slot(model.blocks[2], "mlp", Odd(), self.name)
"""
METHODS = """
    def flops_per_token(self, seq_len: int) -> float:
        return 1000.0 * seq_len

    def kept_bytes_per_token(self, seq_len: int) -> float:
        return 5e6
"""


def planned(*chosen: str, trains: bool = True) -> PassFlops:
    cfg = golf.compose([*SMALL, *chosen])
    return pass_flops(cfg, shapeless_model(cfg), (), trains=trains)


@pytest.mark.parametrize("trains", [True, False])
def test_a_recurrence_is_counted_and_softmax_is_not_charged_for_it(outside: Path, trains: bool) -> None:
    plain, with_delta = planned(trains=trains), planned("tech=[delta_rule]", trains=trains)
    head = DIM // HEADS
    softmax_layer = 2 * (2 * DIM * DIM + 2 * DIM * KV * head)
    # Four matrices, the gates, and two products of the state with a vector for each head.
    delta_layer = 2 * (4 * DIM * DIM + 2 * HEADS * DIM + 2 * HEADS * head * head)
    expected = plain.matmul + (3 if trains else 1) * (delta_layer - softmax_layer)
    assert with_delta.matmul == pytest.approx(expected, rel=0.01)
    assert with_delta.attention_slope == pytest.approx(plain.attention_slope * 3 / 4, rel=0.01)
    assert not with_delta.unknown


def test_a_fixed_map_is_counted_though_it_is_no_weight(outside: Path) -> None:
    plain, mapped = planned(), planned("tech=[random_map]", "tech.random_map.rank=4")
    hidden = mlp_hidden(golf.compose(SMALL).model)
    # Its own gradient is not taken, so it is multiplied twice in training where a matrix is three times.
    more = 2 * (2 * hidden * DIM) + 3 * 2 * (4 * hidden + 4 * DIM) - 3 * 2 * hidden * DIM
    assert mapped.matmul == pytest.approx(plain.matmul + 4 * more, rel=0.01)


def test_a_module_says_its_cost_and_is_not_run(write: Callable[..., Path]) -> None:
    use_ideas([str(write("odd", SAYING.format(methods=METHODS)))])
    plain, odd = golf.compose(SMALL), golf.compose([*SMALL, "tech=[odd]"])
    mlp = 2 * 2 * DIM * mlp_hidden(plain.model)
    before, after = (pass_flops(cfg, shapeless_model(cfg), ()) for cfg in (plain, odd))
    assert not after.unknown
    gained = after.matmul + after.attention(TOKENS) - before.matmul - before.attention(TOKENS)
    assert gained == pytest.approx(3 * (1000 * TOKENS - mlp), abs=before.matmul * 0.01)
    scored = [flops_per_scored_token(cfg, shapeless_model(cfg)) for cfg in (plain, odd)]
    assert scored[1] - scored[0] == pytest.approx(1000 * TOKENS - mlp, rel=0.01)
    memory = [cpu_bytes(cfg, shapeless_model(cfg)) for cfg in (plain, odd)]
    assert memory[1] - memory[0] > 0.8 * 1024 / 4 * 5e6


@pytest.mark.slow
def test_what_cannot_be_counted_is_named(write: Callable[..., Path]) -> None:
    use_ideas([str(write("odd", SAYING.format(methods="")))])
    cfg = golf.compose([*SMALL, "tech=[odd]"])
    plan = make_plan(cfg, history=[])
    sentence = "the operations of Odd are unknown"
    assert sentence in work(plan) and "define flops_per_token there" in work(plan)
    assert sentence in as_dict(plan)["flops_unknown"]
    model = shapeless_model(cfg)
    mlp = 3 * 2 * 2 * DIM * mlp_hidden(cfg.model)
    assert pass_flops(cfg, model, ()).matmul == planned().matmul - mlp
