"""Edits that are lost, parameters in the wrong place and parameters that nothing uses: each is planted here."""

import functools
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor, nn

from golf.errors import GolfError
from golf.lab.proofs.edit_proofs import lost_edits
from golf.lab.proofs.parameter_proofs import misplaced_parameters
from golf.lab.proofs.random_model import RandomWeights, noise
from golf.lab.proofs.run_proofs import RandomPasses, failed_proofs
from golf.settings.config import Config
from golf.settings.consistency import check
from golf.training.model.attention import CausalSelfAttention
from golf.training.model.gpt import GPT, plain_route
from golf.training.model.layers import RMSNorm
from golf.training.model.route import Routes, Visit, route_through
from golf.training.techniques.base import CHANGES_LOSS, Technique, technique
from ideas.recurrence.recurrence import Recurrence
from ideas.swiglu.swiglu import SwiGLU
from tests.support import inert_techniques, with_techniques

pytestmark = pytest.mark.usefixtures("registry")


def test_numbers_depend_on_name_and_index_alone() -> None:
    large, small = noise("w", torch.Size([40, 30])), noise("w", torch.Size([17, 30]))
    assert torch.equal(large[:17], small) and torch.equal(large[:17, :5], noise("w", torch.Size([17, 5])))
    assert not torch.equal(large, noise("v", torch.Size([40, 30])))
    assert large.std().item() == pytest.approx(1.0, abs=0.1) and abs(large.mean().item()) < 0.1
    assert torch.linalg.matrix_rank(large) == 30
    assert torch.equal(noise("b", torch.Size([9]))[:4], noise("b", torch.Size([4])))
    assert noise("s", torch.Size([])).shape == () and noise("t", torch.Size([2, 3, 4])).shape == (2, 3, 4)


def test_models_share_weights_and_not_buffers(tiny_cfg: Config) -> None:
    weights = RandomWeights(tiny_cfg.model.model_dim)
    one, other = weights.model(tiny_cfg), weights.model(tiny_cfg)
    assert one.state_dict().keys() == other.state_dict().keys()
    assert all(p.data_ptr() == q.data_ptr() for p, q in zip(one.parameters(), other.parameters(), strict=True))
    assert all(p.dtype == torch.float64 for p in one.parameters())


@dataclass
class NormAndActivation(Technique):
    """Two edits, of which swiglu undoes one when it comes later."""

    name = "norm_and_activation"
    source = "planted"

    def edit_model(self, model: GPT, cfg: Config) -> None:
        for block in model.blocks:
            block.mlp_norm = replace(block.mlp_norm, eps=1e-2)
            block.mlp.activation = torch.tanh


def test_finds_an_edit_half_lost(tiny_cfg: Config) -> None:
    """The norm is kept and changes the loss, the activation goes with the MLP that swiglu replaces."""
    cfg = with_techniques(tiny_cfg, NormAndActivation(), SwiGLU())
    assert inert_techniques(cfg) == []
    sentence = "norm_and_activation lost its edit of blocks.0.mlp.activation and 3 more to swiglu: "
    (finding,) = lost_edits(cfg)
    assert finding.startswith(sentence) and finding in failed_proofs(cfg)


def test_a_module_that_holds_nothing_but_a_buffer_is_not_lost(tiny_cfg: Config) -> None:
    class Factor(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("now", torch.ones(()))

    @dataclass
    class Planted(Technique):
        name = "planted"
        source = "planted"
        effect = CHANGES_LOSS

        def edit_model(self, model: GPT, cfg: Config) -> None:
            model.training_only[self.name] = Factor()

    names = "a_first", "b_second", "c_third"
    planted = [technique(name)(type(name, (Planted,), {"name": name})) for name in names]
    assert lost_edits(with_techniques(tiny_cfg, *(kind() for kind in planted))) == []


def test_edits_that_go_on_with_earlier_ones_are_none_lost(tiny_cfg: Config) -> None:
    @technique("a_first")
    @dataclass
    class First(Technique):
        source = "planted"

        def edit_model(self, model: GPT, cfg: Config) -> None:
            model.final_norm = replace(model.final_norm, eps=1e-2)
            model.blocks[0].mlp.activation = torch.tanh
            model.blocks[1].mlp.activation = torch.sin
            model.blocks[2].attn.output_hooks["gate"].append(halved)
            model.rescale = nn.Linear(2, 2)

    @technique("b_second")
    @dataclass
    class Second(Technique):
        source = "planted"

        def edit_model(self, model: GPT, cfg: Config) -> None:
            model.final_norm = replace(model.final_norm, factor=2.0)
            first = model.blocks[0].mlp.activation
            model.blocks[0].mlp.activation = lambda x: 2 * first(x)
            model.blocks[1].mlp.activation = functools.partial(doubled, model.blocks[1].mlp.activation)
            model.blocks[2].attn.output_hooks["gate"].insert(0, kept)
            model.rescale = nn.Sequential(model.rescale)

    @technique("c_third")
    @dataclass
    class Third(Technique):
        source = "planted"

        def edit_model(self, model: GPT, cfg: Config) -> None:
            model.final_norm = RMSNorm(eps=1e-3, factor=2.0)
            model.blocks[2].attn.output_hooks["gate"] = []
            model.rescale = nn.Linear(2, 2)

    assert lost_edits(with_techniques(tiny_cfg, First(), Second())) == []
    assert lost_edits(with_techniques(tiny_cfg, First(), Second(), Third())) == [
        "a_first lost its edit of final_norm and 2 more to c_third: select one of the two",
        "b_second lost its edit of rescale and 1 more to c_third: select one of the two",
    ]


def halved(attn: CausalSelfAttention, y: Tensor, v: Tensor, x: Tensor) -> Tensor:
    return y / 2


def kept(attn: CausalSelfAttention, y: Tensor, v: Tensor, x: Tensor) -> Tensor:
    return y


def doubled(activation: object, x: Tensor) -> Tensor:
    return 2 * activation(x)


@dataclass
class Zigzag(Technique):
    """A second technique with a route of its own, which has as many skips as recurrence's."""

    name = "zigzag"
    source = "planted"
    is_switch = True

    def routes(self, cfg: Config) -> Routes:
        skips = cfg.model.unet_skips
        late = route_through([0, 1, 1, 2, 2, 3, 3, 3, 3], skips=skips)
        return Routes(plain_route(cfg.model), {self.name: late})


def test_finds_a_route_that_loses(tiny_cfg: Config) -> None:
    """A pass takes one route. What the other one does to the shapes of parameters is no effect."""
    cfg = with_techniques(tiny_cfg, Recurrence(), Zigzag())
    assert len(inert_techniques(cfg)) == 1
    with pytest.raises(GolfError, match="recurrence and zigzag"):
        check(cfg)
    assert (
        failed_proofs(with_techniques(tiny_cfg, Recurrence()))
        == failed_proofs(with_techniques(tiny_cfg, Zigzag()))
        == []
    )


def gate(kind: str, module: str, shape: tuple[int, int]) -> Technique:
    """Return a technique with a matrix of a shape in an optimizer group, of which the loss depends on every row."""

    @technique("planted_gate")
    @dataclass
    class Gate(Technique):
        source = "planted"
        groups = (("*.planted*", kind),)

        def edit_model(self, model: GPT, cfg: Config) -> None:
            attn = model.blocks[0].attn
            if module == "parameter":
                attn.planted = nn.Parameter(torch.zeros(shape))
            elif module == "linear":
                attn.planted = nn.Linear(shape[1], shape[0], bias=False)
            elif module == "casted":
                attn.planted = type(attn.c_q)(shape[1], shape[0])
            else:
                attn.planted = nn.Embedding(*shape)

    return Gate()


@pytest.mark.parametrize(
    "kind, module, shape, fault",
    [
        ("matrix", "parameter", (4, 12), "is no weight of an nn.Linear, which Muon is for: list it as scalar"),
        ("matrix", "linear", (4, 12), "has fewer rows than a head has channels (8), as a gate has: list it as scalar"),
        ("matrix", "table", (64, 32), "is no weight of an nn.Linear, which Muon is for: list it as scalar"),
        ("scalar", "table", (64, 32), "is a table of embeddings: list it as embed"),
        ("scalar", "parameter", (4, 12), ""),
        ("scalar", "linear", (4, 32), ""),
        ("scalar", "casted", (32, 16), ""),
        ("matrix", "casted", (8, 32), ""),
        ("embed", "table", (64, 32), ""),
    ],
)
def test_finds_a_matrix_in_the_wrong_group(
    kind: str, module: str, shape: tuple[int, int], fault: str, tiny_cfg: Config
) -> None:
    tiny_cfg.model.num_heads, tiny_cfg.model.num_kv_heads = 4, 2
    found = misplaced_parameters(with_techniques(tiny_cfg, gate(kind, module, shape)))
    name = "blocks.0.attn.planted" + ("" if module == "parameter" else ".weight")
    assert found == ([f"parameter {name} {list(shape)} is in the optimizer group {kind}, but {fault}"] if fault else [])


def test_a_parameter_without_an_optimizer_is_refused_before_the_proofs(tiny_cfg: Config) -> None:
    planted = gate("matrix", "parameter", (4, 12))
    type(planted).groups = ()
    with pytest.raises(GolfError, match=r"blocks\.0\.attn\.planted \(4, 12\) belongs to no optimizer group"):
        failed_proofs(with_techniques(tiny_cfg, planted))


@dataclass
class HalfUsed(Technique):
    """Gains for three places of which two are read, and a bias that is read nowhere."""

    name = "half_used"
    source = "planted"
    groups = (("*_gains", "scalar"), ("*_bias", "scalar"))

    def edit_model(self, model: GPT, cfg: Config) -> None:
        model.three_gains = nn.Parameter(torch.ones(3, cfg.model.model_dim))
        model.lost_bias = nn.Parameter(torch.full((4,), 2.0))
        model.blocks[0].attn.output_hooks["gate"].append(lambda attn, y, v, x: y)
        model.after_norm["add"].append(lambda x, ids: x * model.three_gains[0] + model.three_gains[2])


def test_finds_rows_and_parameters_that_nothing_uses(tiny_cfg: Config) -> None:
    assert RandomPasses(tiny_cfg).unused() == []
    cfg = with_techniques(tiny_cfg, HalfUsed())
    assert RandomPasses(cfg).unused() == [
        f"row 1 of parameter three_gains [3, {cfg.model.model_dim}]: no layer uses it",
        "parameter lost_bias [4] is used by nothing: the loss does not depend on it",
    ]


SHORT = (Visit(0, stores=True), Visit(1, joins=0), Visit(2), Visit(3))


def test_rows_that_are_used_before_a_switch_are_used(tiny_cfg: Config) -> None:
    @technique("shortcut")
    @dataclass
    class Shortcut(Technique):
        """A late route of fewer joins: the second row of the skip weights is read before the switch alone."""

        source = "planted"
        is_switch = True

        def routes(self, cfg: Config) -> Routes:
            return Routes(plain_route(cfg.model), {self.name: SHORT})

    @technique("shortcut")
    @dataclass
    class Shortened(Technique):
        """The same route from the start."""

        source = "planted"

        def edit_model(self, model: GPT, cfg: Config) -> None:
            model.route = SHORT

    cfg = with_techniques(tiny_cfg, Shortcut())
    assert RandomPasses(cfg).unused() == []
    cfg.tech["shortcut"] = Shortened()
    assert RandomPasses(cfg).unused() == ["row 1 of parameter skip_weights [2, 32]: no layer uses it"]
