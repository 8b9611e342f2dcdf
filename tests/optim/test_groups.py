"""Every parameter is in exactly one optimizer group."""

import pytest
import torch
from torch import nn

from golf.composition import compose
from golf.errors import GolfError
from golf.model.gpt import build_model
from golf.optim.groups import build_optimizer, group_of, group_parameters


@pytest.mark.parametrize("tied", [True, False])
def test_groups_partition_the_parameters(tied: bool) -> None:
    cfg = compose(["scale=laptop", f"model.tie_embeddings={tied}"])
    model = build_model(cfg)
    grouped = [id(p) for params in group_parameters(model).values() for p in params]
    assert sorted(grouped) == sorted(id(p) for p in model.parameters())
    optimized = [id(p) for p in build_optimizer(cfg, model).parameters()]
    assert sorted(optimized) == sorted(grouped)


@pytest.mark.parametrize(
    ("name", "shape", "group"),
    [
        ("tok_emb.weight", (8, 4), "embed"),
        ("lm_head.weight", (8, 4), "head"),
        ("blocks.0.attn.c_q.weight", (4, 4), "matrix"),
        ("blocks.0.resid_mix", (2, 4), "scalar"),
        ("blocks.0.attn.q_gain", (2,), "scalar"),
        ("skip_weights", (2, 4), "scalar"),
    ],
)
def test_rules(name: str, shape: tuple[int, ...], group: str) -> None:
    assert group_of(name, torch.zeros(shape)) == group


def test_a_parameter_that_no_rule_knows_is_an_error() -> None:
    model = nn.Module()
    model.bigram = nn.Linear(4, 4, bias=False)
    with pytest.raises(GolfError, match=r"bigram\.weight \(4, 4\) belongs to no optimizer group"):
        group_parameters(model)


def test_learning_rates_go_to_their_groups() -> None:
    cfg = compose(["model.tie_embeddings=false", "optim.embed_lr=0.1", "optim.head_lr=0.2", "optim.scalar_lr=0.3"])
    optimizer = build_optimizer(cfg, build_model(cfg))
    assert [adam.lr for adam in optimizer.adams] == [0.1, 0.2, 0.3]
    assert optimizer.muon.lr == cfg.optim.matrix_lr


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ([], [0.04, 0.04, 0.04]),
        (["optim.embed_wd=0.085"], [0.085, 0.04, 0.04]),
        (["optim.head_wd=0"], [0.04, 0.0, 0.04]),
    ],
)
def test_decay_goes_to_embedding_head_and_scalars(settings: list[str], expected: list[float]) -> None:
    """PR #1559 decays all three; #649 and #549 leave the head alone; April's stack decays embeddings more."""
    cfg = compose(["scale=laptop", "model.tie_embeddings=false", "optim.adam_wd=0.04", *settings])
    assert [adam.weight_decay for adam in build_optimizer(cfg, build_model(cfg)).adams] == expected


def test_every_parameter_moves() -> None:
    cfg = compose(["scale=laptop", "model.tie_embeddings=false"])
    model = build_model(cfg)
    optimizer = build_optimizer(cfg, model)
    start = {name: p.detach().clone() for name, p in model.named_parameters()}
    for _ in range(3):  # zero-initialised projections let the rest move from the second step on
        optimizer.zero_grad()
        ids = torch.randint(cfg.model.vocab_size, (2, 33))
        model(ids[:, :-1], ids[:, 1:]).backward()
        optimizer.step()
    assert [name for name, p in model.named_parameters() if torch.equal(p, start[name])] == []
