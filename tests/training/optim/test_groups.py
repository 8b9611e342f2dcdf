"""Every parameter is in exactly one optimizer group."""

import copy

import pytest
import torch
from torch import nn

from golf.errors import GolfError
from golf.settings.config import OptimConfig
from golf.training.model.build import build_model
from golf.training.optim.adam import Adam, AdamWithMoments
from golf.training.optim.groups import build_optimizer, group_of, group_parameters
from golf.training.optim.muon import Muon
from golf.training.optim.parallel_muon import ParallelMuon
from tests.support import compose, parity


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("form", ["sharded", "parallel"])
def test_groups_partition_the_parameters(tied: bool, form: str) -> None:
    cfg = compose(["scale=laptop", f"model.tie_embeddings={tied}", f"optim.muon={form}"])
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


def slow_muon(weight: torch.Tensor, grad: torch.Tensor, buffer: torch.Tensor, o: OptimConfig, lr: float) -> None:
    """The definition, one matrix at a time: decay at the scheduled rate, then the orthogonalised Nesterov update."""
    buffer.copy_(0.9 * buffer + grad)
    x = grad + 0.9 * buffer
    x = x / (x.norm() + 1e-7)
    for _ in range(o.muon_backend_steps):
        gram = x @ x.T if x.shape[0] <= x.shape[1] else x.T @ x
        poly = -4.7750 * gram + 2.0315 * gram @ gram
        x = 3.4445 * x + (poly @ x if x.shape[0] <= x.shape[1] else x @ poly)
    scale = max(1.0, weight.shape[0] / weight.shape[1]) ** 0.5
    weight.copy_(weight * (1 - lr * o.muon_wd) - lr * scale * x)


@pytest.mark.parametrize("form", ["sharded", "parallel"])
def test_six_steps_of_decay_and_clipping_equal_their_definitions(form: str) -> None:
    decay = ["optim.muon_wd=1.5", "optim.adam_wd=0.8", "optim.embed_wd=1.2", "optim.head_wd=0"]  # large: they show
    cfg = compose(
        [
            *("scale=laptop", "model=4l", "model.model_dim=32", "model.tie_embeddings=false", f"optim.muon={form}"),
            *("model.compute_dtype=fp32", "optim.muon_dtype=fp32", "optim.grad_clip_norm=0.3", *decay),
        ]
    )
    o, model = cfg.optim, build_model(cfg)
    ours, slow = build_optimizer(cfg, model), copy.deepcopy(model)
    groups = group_parameters(slow)
    buffers = [torch.zeros_like(p) for p in groups["matrix"]]
    reference = [
        torch.optim.AdamW(groups[name], lr=lr, betas=(o.beta1, o.beta2), eps=o.adam_eps, weight_decay=wd)
        for name, lr, wd in (("embed", o.embed_lr, 1.2), ("head", o.head_lr, 0.0), ("scalar", o.scalar_lr, 0.8))
    ]
    base_lrs = [group.param_groups[0]["lr"] for group in reference]
    for step in range(6):
        multiplier = 1.0 - step / 8
        ours.zero_grad()
        for p, q in zip(model.parameters(), slow.parameters(), strict=True):
            p.grad = torch.randn_like(p) * (1e-4, 1.0, 0.1)[step % 3]  # the first of three is not clipped
            q.grad = p.grad.clone()
        ours.step(multiplier, 0.9)
        torch.nn.utils.clip_grad_norm_(slow.parameters(), 0.3)
        with torch.no_grad():
            for p, buffer in zip(groups["matrix"], buffers, strict=True):
                assert p.grad is not None
                slow_muon(p, p.grad, buffer, o, o.matrix_lr * multiplier)
        for adamw, lr in zip(reference, base_lrs, strict=True):
            adamw.param_groups[0]["lr"] = lr * multiplier
            adamw.step()
        for p, q in zip(model.parameters(), slow.parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("form", ["sharded", "parallel"])
def test_every_parameter_moves(form: str) -> None:
    cfg = compose(["scale=laptop", "model.tie_embeddings=false", f"optim.muon={form}"])
    model = build_model(cfg)
    optimizer = build_optimizer(cfg, model)
    start = {name: p.detach().clone() for name, p in model.named_parameters()}
    for _ in range(3):  # zero-initialised projections let the rest move from the second step on
        optimizer.zero_grad()
        ids = torch.randint(cfg.model.vocab_size, (2, 33))
        model(ids[:, :-1], ids[:, 1:]).backward()
        optimizer.step()
    assert [name for name, p in model.named_parameters() if torch.equal(p, start[name])] == []


@pytest.mark.parametrize("name, form", [("sharded", Muon), ("parallel", ParallelMuon)])
def test_the_chosen_form_of_muon_is_built(name: str, form: type) -> None:
    cfg = compose(["scale=laptop", "model=4l", f"optim.muon={name}"])
    assert type(build_optimizer(cfg, build_model(cfg)).muon) is form


@pytest.mark.parametrize("dtype, form", [("parameter", Adam), ("fp32", AdamWithMoments), ("bf16", AdamWithMoments)])
def test_the_chosen_form_of_adam_is_built(dtype: str, form: type) -> None:
    cfg = compose(["scale=laptop", "model=4l", f"optim.adam_moment_dtype={dtype}"])
    assert {type(adam) for adam in build_optimizer(cfg, build_model(cfg)).adams} == {form}


BANKS = {
    "qo_bank": ("attn.c_q", "attn.proj"),
    "kv_bank": ("attn.c_k", "attn.c_v"),
    "mlp_up_bank": ("mlp.fc",),
    "mlp_down_bank": ("mlp.proj",),
}


def our_names(public: str) -> list[str]:
    """Return the parameters here that a parameter of the public scripts stands for; a bank stands for all layers."""
    if public in BANKS:
        return [f"blocks.{layer}.{matrix}.weight" for layer in range(11) for matrix in BANKS[public]]
    ours = {"smear_gate.weight": "smear.gate.weight", "smear_lambda": "smear.strength"}
    return [ours.get(public, public.replace("attn_gate_w", "attn_gate.weight"))]


@pytest.mark.parametrize(
    "record", ["2026-04-09_sp8192_loop345x2_parallel", "2026-04-27_caseops_lqer_9hp"], ids=lambda record: record[:10]
)
def test_the_optimizers_of_two_april_records(record: str) -> None:
    """Every parameter has the optimizer, rate, betas and decay that the record's script gives it."""
    _, listing = parity("optim_split_a")
    (split,) = (s for s in listing["splits"] if record[:10] in s["record"])
    small = ["model.model_dim=64", "model.num_heads=8", "model.num_kv_heads=4", "data.vocab_size=256"]
    cfg = compose(
        [f"experiment=records/{record}", "scale=record", "data.fingerprint=null", *small, "launch.device=cpu"]
    )
    model = build_model(cfg)
    names = {id(param): name for name, param in model.named_parameters()}
    optimizer = build_optimizer(cfg, model)
    found = {names[id(p)]: ("Muon", optimizer.muon.lr, optimizer.muon.weight_decay) for p in optimizer.muon.params}
    for adam in optimizer.adams:
        found |= {names[id(p)]: ("AdamW", adam.lr, adam.weight_decay) for p in adam.params}
    groups = split["groups"]
    expected = {name: (g["class"], g["base_lr"], g["weight_decay"]) for g in groups for name in g["params"]}
    expected = {ours: value for name, value in expected.items() for ours in our_names(name)}
    assert found == expected
    adams = {(*g["betas"], g["eps"]) for g in groups if "betas" in g}
    assert adams == {(cfg.optim.beta1, cfg.optim.beta2, cfg.optim.adam_eps)} and not split["in_no_group"]
    muon = next(g for g in groups if g["class"] == "Muon")
    assert (muon["momentum"], muon["row_normalize"]) == (cfg.optim.muon_momentum, cfg.optim.muon_row_normalize)
