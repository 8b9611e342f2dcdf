"""Rules for matrices: equal steps in both forms of Muon and on two ranks; their order, state and conflicts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import golf
from golf.errors import GolfError
from golf.lab.proofs.setting_proofs import inert_settings
from golf.registry import technique_types
from golf.settings.config import Config
from golf.training.loop.checkpoint import flatten
from golf.training.loop.schedule import schedule_decay
from golf.training.model.build import build_model
from golf.training.optim.groups import build_optimizer
from golf.training.optim.muon import MatrixOptimizer, Muon
from golf.training.optim.parallel_muon import ParallelMuon
from golf.training.optim.rules import MatrixRule, State, optimizers_of_groups, ruled
from golf.training.ranks import ALONE, Ranks
from golf.training.techniques.base import CHANGES_STEP, Technique
from tests.support import on_ranks
from tests.training.optim.test_parallel_muon import optimizer, set_mean_gradients, weights

RULES = [
    *(["normuon"], ["cautious"], ["centralized"], ["adam_matrices"], ["lion_matrices"], ["soap"]),
    ["normuon", "cautious", "centralized"],
]


def with_rules(form: type[MatrixOptimizer], names: list[str]) -> Any:
    cfg = Config(tech={name: technique_types()[name]() for name in names})
    return ruled(form, [*sorted(cfg.tech.values(), key=lambda t: (t.phase, t.name))], cfg)


def train(ranks: Ranks, names: list[str], form: type[MatrixOptimizer], shown: list[int]) -> list[Tensor]:
    """Weights after five steps. `shown` are the ranks whose mean gradients each rank gets."""
    made = optimizer(with_rules(form, names), 3.0, ranks, muon_dtype="fp32")
    for step in range(5):
        set_mean_gradients(made, step, shown)
        made.step(1.0 / (step + 1), 0.9)
    assert all(bool(kept.isfinite().all()) for kept in flatten(made.muon.state_dict()).values())
    return weights(made)


def train_on_rank(rank: int, world_size: int) -> list[list[Tensor]]:
    ranks = Ranks(rank, world_size)
    own = [train(ranks, names, ParallelMuon, [rank]) for names in RULES]
    return own + [train(ranks, names, Muon, [*range(world_size)]) for names in RULES]


@pytest.mark.slow
def test_two_ranks_step_as_one_in_both_forms(tmp_path: Path) -> None:
    first, second = on_ranks(2, tmp_path, train_on_rank)
    plain = weights(optimizer(Muon))
    for i, names in enumerate([*RULES, *RULES]):
        alone = train(ALONE, names, Muon, [0, 1])
        for one, other, expected, start in zip(first[i], second[i], alone, plain, strict=True):
            assert torch.equal(one, other), names
            # Signs of Lion differ where sums over ranks round to another side of zero.
            tolerance = 1e-2 if one.dtype == torch.bfloat16 else 1e-5
            assert (one - expected).norm() <= tolerance * expected.norm(), names
            assert not torch.equal(one, start)


@pytest.mark.parametrize("names", RULES, ids="-".join)
def test_both_forms_are_one_on_one_rank(names: list[str]) -> None:
    both = [train(ALONE, names, form, [0]) for form in (Muon, ParallelMuon)]
    assert all(torch.equal(p, q) for p, q in zip(*both, strict=True))
    alone = optimizer(Muon, 3.0, muon_dtype="fp32")
    for step in range(5):
        set_mean_gradients(alone, step, [0])
        alone.step(1.0 / (step + 1), 0.9)
    assert not all(torch.equal(p, q) for p, q in zip(both[0], weights(alone), strict=True))


def test_a_rule_without_parts_is_muon_to_the_bit() -> None:
    alone, empty = optimizer(Muon, 3.0), optimizer(ruled(Muon, [], Config()), 3.0)
    for step in range(5):
        for made in (alone, empty):
            set_mean_gradients(made, step, [0])
            made.step(1.0 / (step + 1), 0.9)
    assert all(torch.equal(p, q) for p, q in zip(weights(alone), weights(empty), strict=True))


def doubled(update: Tensor, grads: Tensor, state: State) -> Tensor:
    return 2 * update


def shifted(update: Tensor, grads: Tensor, state: State) -> Tensor:
    state["count"].add_(1)
    return update + state["count"]


class Edits(Technique):
    """A technique with any rule."""

    effect = CHANGES_STEP

    def __init__(self, name: str, make: Callable[[MatrixRule], MatrixRule]):
        self.name, self.make = name, make  # type: ignore[misc]

    def matrix_rule(self, rule: MatrixRule, cfg: Config) -> MatrixRule:
        return self.make(rule)


def test_edits_act_in_the_order_of_the_techniques_and_keep_state() -> None:
    double = Edits("double", lambda rule: rule.with_after(doubled))
    shift = Edits("shift", lambda rule: rule.with_after(shifted, count=lambda shape: (1, 1)))
    found = []
    for order in ([double, shift], [shift, double]):
        made = optimizer(ruled(Muon, order, Config()))
        set_mean_gradients(made, 0, [0])
        made.step()
        counts = {name: kept for name, kept in flatten(made.muon.state_dict()).items() if " count" in name}
        assert counts and all(kept.shape[1:] == (1, 1) and bool((kept == 1).all()) for kept in counts.values())
        found.append(weights(made))
    assert not torch.equal(found[0][0], found[1][0])


@pytest.mark.parametrize("make", [MatrixRule.replaced, MatrixRule.with_after])
def test_an_update_of_another_shape_is_refused(make: Callable[..., MatrixRule]) -> None:
    mean = Edits("mean", lambda rule: make(rule, lambda grads, *_: grads.mean(-1, keepdim=True)))
    made = optimizer(ruled(Muon, [mean], Config()))
    set_mean_gradients(made, 0, [0])
    with pytest.raises(GolfError, match=r"returned an update \[\d+, \d+, 1\] for gradients"):
        made.step()


@pytest.mark.parametrize("make", [MatrixRule.replaced, MatrixRule.with_before, MatrixRule.with_after])
def test_an_edit_that_returns_nothing_is_refused(make: Callable[..., MatrixRule]) -> None:
    forgot = Edits("forgot", lambda rule: make(rule, lambda *_: None))
    made = optimizer(ruled(Muon, [forgot], Config()))
    set_mean_gradients(made, 0, [0])
    with pytest.raises(GolfError, match=r"returned a NoneType for gradients"):
        made.step()


def test_rules_that_do_not_fit_together_are_refused() -> None:
    kinds = technique_types()
    for names in (["adam_matrices", "lion_matrices"], ["centralized", "lion_matrices"]):
        with pytest.raises(GolfError, match="replaces Muon, and another one"):
            ruled(Muon, [kinds[name]() for name in names], Config())
    with pytest.raises(GolfError, match="state called neuron_squares"):
        ruled(Muon, [kinds["normuon"](), kinds["normuon"]()], Config())
    with pytest.raises(GolfError, match="how matrices decay"):
        ruled(Muon, [kinds["cautious"](), kinds["cautious"]()], Config())


def test_a_rule_of_matrices_that_another_optimizer_trains_is_refused() -> None:
    kinds = technique_types()
    rule, other = kinds["soap"](), kinds["schedule_free"]
    with pytest.raises(GolfError, match="tech soap changes the rule of the matrices"):
        optimizers_of_groups([rule, other()], Config())
    assert {*optimizers_of_groups([rule, other(replaces=["scalar"])], Config())} == {"scalar"}


def test_a_rule_that_changes_no_step_is_named() -> None:
    cfg = golf.compose(["model=4l", "scale=laptop", "tech=[normuon]"])
    assert inert_settings(cfg, lambda other: True) == []
    idle = Edits("idle", lambda rule: rule.with_after(lambda update, grads, state: update))
    cfg.tech["idle"] = idle
    assert inert_settings(cfg, lambda other: True) == ["idle changed no step of the optimizer"]
    # Alone, too, where it makes another class of Muon.
    cfg.tech = {"idle": idle}
    assert inert_settings(cfg, lambda other: True) == ["idle changed no step of the optimizer"]


@pytest.mark.parametrize(
    "selected", [["tech=[soap]"], ["tech=[torch_optimizer]", "tech.torch_optimizer.replaces=[matrix]"]]
)
def test_settings_of_muon_rest_where_another_method_updates_the_matrices(selected: list[str]) -> None:
    own = ["optim=parallel_muon", "optim.muon_coefficients=polar_express", "optim.muon_row_normalize=true"]
    cfg = golf.compose(["model=4l", "scale=laptop", *own, *selected])
    assert inert_settings(cfg, lambda other: True) == []


def test_a_taper_of_the_decay_reaches_an_optimizer_in_the_place_of_muon() -> None:
    overrides = ["model=4l", "scale=laptop", "model.model_dim=32", "optim.muon_wd=0.2", "optim.adam_wd=0.1"]
    selected = ["tech=[torch_optimizer]", "tech.torch_optimizer.replaces=[matrix]"]
    cfg = golf.compose([*overrides, *selected, "schedule.muon_wd_taper_final=0.5"])
    made = build_optimizer(cfg, build_model(cfg))
    assert made.muon_is_replaced and not made.muon.params and all(param.ndim == 2 for param in made.adams[-1].params)
    schedule_decay(cfg, made, 1.0)
    # Half the decay for the matrices, and the own one for the rest.
    assert [part.weight_decay for part in made.adams] == pytest.approx([0.1, 0.1, 0.1])
    schedule_decay(cfg, made, 0.5)
    assert [part.weight_decay for part in made.adams] == pytest.approx([0.1, 0.1, 0.2])
