"""The baseline model against the public script's numbers and against a slow definition of our own."""

import math
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from golf.settings.config import LaunchConfig, ModelConfig
from golf.training.model.build import build_model, compile_for_training
from golf.training.model.gpt import GPT
from tests.support import compose, parity

SMALL = ModelConfig(vocab_size=50, num_layers=5, model_dim=16, num_heads=4, num_kv_heads=2, compute_dtype="fp32")


def randomised(cfg: ModelConfig, seed: int = 0) -> GPT:
    """A model in which every parameter matters."""
    torch.manual_seed(seed)
    model = GPT(cfg)
    for param in model.parameters():
        param.data = 0.3 * torch.randn_like(param) + (param.data.mean() if param.ndim == 1 else 0)
    return model


def slow_logits(params: dict[str, np.ndarray], cfg: ModelConfig, ids: np.ndarray) -> np.ndarray:
    """The definition, one position and one head at a time, in float64."""
    d, heads, head_dim = cfg.model_dim, cfg.num_heads, cfg.model_dim // cfg.num_heads

    def norm(x: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + np.finfo(np.float32).eps)

    def rotate(x: np.ndarray, position: int) -> np.ndarray:
        half, out = head_dim // 2, x.copy()
        for j in range(half):
            angle = position * cfg.rope_base ** (-2 * j / head_dim)
            a, b = x[j], x[j + half]
            out[j] = a * math.cos(angle) + b * math.sin(angle)
            out[j + half] = b * math.cos(angle) - a * math.sin(angle)
        return out

    def attention(prefix: str, x: np.ndarray) -> np.ndarray:
        q, k, v = (x @ params[f"{prefix}.c_{n}.weight"].T for n in "qkv")
        out = np.zeros((len(x), d))
        for t in range(len(x)):
            for h in range(heads):
                g = h // (heads // cfg.num_kv_heads)
                mine, own = slice(h * head_dim, (h + 1) * head_dim), slice(g * head_dim, (g + 1) * head_dim)
                query = rotate(norm(q[t, mine]), t) * params[f"{prefix}.q_gain"][h]
                scores = [query @ rotate(norm(k[s, own]), s) / math.sqrt(head_dim) for s in range(t + 1)]
                weights = np.exp(scores - np.max(scores))
                out[t, mine] = (weights / weights.sum()) @ v[: t + 1, own]
        return out @ params[f"{prefix}.proj.weight"].T

    x = x0 = norm(params["tok_emb.weight"][ids])
    encoder = cfg.num_layers // 2
    skips: list[np.ndarray] = []
    for i in range(cfg.num_layers):
        if i >= encoder and skips:
            x = x + params["skip_weights"][i - encoder] * skips.pop()
        b = f"blocks.{i}"
        x = params[f"{b}.resid_mix"][0] * x + params[f"{b}.resid_mix"][1] * x0
        x = x + params[f"{b}.attn_scale"] * attention(f"{b}.attn", norm(x))
        hidden = np.maximum(norm(x) @ params[f"{b}.mlp.fc.weight"].T, 0) ** 2
        x = x + params[f"{b}.mlp_scale"] * (hidden @ params[f"{b}.mlp.proj.weight"].T)
        if i < encoder:
            skips.append(x)
    head = params["lm_head.weight" if "lm_head.weight" in params else "tok_emb.weight"]
    return cfg.logit_softcap * np.tanh(norm(x) @ head.T / cfg.logit_softcap)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("layers", [1, 4, 5])
def test_logits_equal_the_slow_definition(tied: bool, layers: int) -> None:
    cfg = ModelConfig(**{**vars(SMALL), "tie_embeddings": tied, "num_layers": layers, "logit_softcap": 3.0})
    model = randomised(cfg)
    ids = torch.randint(50, (1, 9))
    params = {name: p.detach().double().numpy() for name, p in model.named_parameters()}
    torch.testing.assert_close(
        model.logits(ids)[0].double(), torch.from_numpy(slow_logits(params, cfg, ids[0].numpy())), atol=1e-4, rtol=1e-4
    )


def test_parity_with_the_public_baseline() -> None:
    arrays, config = parity("baseline_tied")
    config.pop("note")
    model = GPT(ModelConfig(**config, compute_dtype="fp32"))
    params = {k.removeprefix("param/"): torch.from_numpy(v) for k, v in arrays.items() if k.startswith("param/")}
    model.load_state_dict(params)
    ids, targets = torch.from_numpy(arrays["input_ids"]), torch.from_numpy(arrays["target_ids"])
    loss = model(ids, targets)
    loss.backward()
    assert loss.item() == pytest.approx(float(arrays["loss"]), rel=1e-5)
    assert relative_distance(model.logits(ids), arrays["logits"]) < 1e-5
    for name, param in model.named_parameters():
        assert param.grad is not None
        assert relative_distance(param.grad, arrays[f"grad/{name}"]) < 1e-5, name


def relative_distance(found: Tensor, expected: np.ndarray) -> float:
    wanted = torch.from_numpy(expected)
    return float((found.detach() - wanted).norm() / wanted.norm())


@pytest.mark.parametrize(
    ("overrides", "params"),
    [
        (["experiment=naive_baseline"], 17_059_912),
        (["experiment=lower_lr"], 17_059_912),
        (["experiment=fp16_embed_wd3600"], 16_765_000),
        (["model=9l", "model.num_layers=8", "model.mlp_hidden=1536"], 19_417_152),
        (["model=11l"], 26_501_720),
    ],
)
def test_parameter_counts_of_the_public_runs(overrides: list[str], params: int) -> None:
    with torch.device("meta"):
        model = GPT(compose([*overrides, "scale=record"]).model)
    assert sum(p.numel() for p in model.parameters()) == params


def test_loss_is_the_mean_of_token_losses_and_of_the_logits() -> None:
    model = randomised(SMALL)
    ids, targets = torch.randint(50, (2, 7)), torch.randint(50, (2, 7))
    losses = model.token_losses(ids, targets)
    by_hand = -model.logits(ids).log_softmax(-1).gather(-1, targets[..., None])[..., 0]
    torch.testing.assert_close(losses, by_hand)
    torch.testing.assert_close(model(ids, targets), losses.mean())


def test_a_token_changes_no_earlier_logit() -> None:
    model, ids = randomised(SMALL), torch.randint(50, (1, 12))
    changed = ids.clone()
    changed[0, 7] = (changed[0, 7] + 1) % 50
    before, after = model.logits(ids), model.logits(changed)
    torch.testing.assert_close(before[:, :7], after[:, :7])
    assert not torch.allclose(before[:, 7:], after[:, 7:])


def test_logits_are_capped() -> None:
    cfg = ModelConfig(**{**vars(SMALL), "logit_softcap": 2.0})
    assert randomised(cfg).logits(torch.randint(50, (1, 20))).abs().max() <= 2.0


def test_seed_decides_the_weights_and_nothing_else_is_disturbed() -> None:
    one, other = compose(["seed=1"]), compose(["seed=2"])
    torch.manual_seed(0)
    before = torch.rand(1)
    torch.manual_seed(0)
    first = build_model(one).state_dict()
    assert torch.equal(torch.rand(1), before)
    assert all(torch.equal(a, b) for a, b in zip(first.values(), build_model(one).state_dict().values(), strict=True))
    assert not torch.equal(first["tok_emb.weight"], build_model(other).state_dict()["tok_emb.weight"])


def test_a_fresh_model_starts_at_the_uniform_loss() -> None:
    cfg = compose(["scale=laptop"])
    ids = torch.randint(cfg.model.vocab_size, (2, 65))
    assert build_model(cfg)(ids[:, :-1], ids[:, 1:]).item() == pytest.approx(math.log(cfg.model.vocab_size), abs=0.1)


def test_bf16_keeps_matrices_and_vectors_in_float32() -> None:
    model = GPT(ModelConfig(**{**vars(SMALL), "compute_dtype": "bf16"}))
    dtypes = {name: p.dtype for name, p in model.named_parameters()}
    assert dtypes.pop("tok_emb.weight") == torch.bfloat16
    assert set(dtypes.values()) == {torch.float32}
    assert model.logits(torch.randint(50, (1, 4))).dtype == torch.bfloat16


def test_bf16_is_close_to_float32() -> None:
    reference = randomised(SMALL)
    model = GPT(ModelConfig(**{**vars(SMALL), "compute_dtype": "bf16"}))
    model.load_state_dict(reference.state_dict())
    ids, targets = torch.randint(50, (2, 16)), torch.randint(50, (2, 16))
    assert model(ids, targets).item() == pytest.approx(reference(ids, targets).item(), rel=0.02)


@pytest.mark.parametrize(("mode", "graphs"), [("full", 1), ("blocks", SMALL.num_layers), ("off", 0)])
def test_compilation_asks_for_whole_graphs_of_fixed_shapes(
    mode: str, graphs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, bool]] = []
    # The real one takes seconds to import.
    dynamo = SimpleNamespace(config=SimpleNamespace(recompile_limit=8))
    monkeypatch.setitem(sys.modules, "torch._dynamo", dynamo)
    monkeypatch.setattr(torch, "_dynamo", dynamo, raising=False)
    monkeypatch.setattr(torch.nn.Module, "compile", lambda module, **options: asked.append(options))
    compile_for_training(GPT(SMALL), LaunchConfig(compile=mode))
    assert asked == graphs * [{"dynamic": False, "fullgraph": True}]
