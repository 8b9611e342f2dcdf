"""The chunks against a loop over tokens in float64, documents apart, costs by hand, and what runs with it."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

import golf
from golf.errors import GolfError
from golf.lab.corpora.own_text import OwnDataset
from golf.launch.launcher import train_and_score
from golf.run.result import OK
from golf.training.model.documents import PIECES, piece_starts
from golf.training.model.gpt import GPT
from golf.training.model.layers import Context
from ideas.gated_deltanet import fla_kernel, gated_deltanet
from ideas.gated_deltanet.gated_deltanet import GatedDeltaNet, delta_rule
from tests.support import compose, refusal, tiny_overrides

DIM, BOS = 32, 1
SMALL = ["model=4l", "scale=laptop", f"model.model_dim={DIM}", "model.num_heads=4", "model.num_kv_heads=2"]
DOCUMENTS = ["model.within_documents=true", "eval.documents=true"]
PUBLIC = {"heads": 4, "key_heads": 2, "taps": 2, "features": "elu", "norm": "false", "decays": "log_uniform"}


def settings(**values: Any) -> str:
    return "tech.gated_deltanet={" + ",".join(f"{name}:{value}" for name, value in values.items()) + "}"


def filled(*chosen: str, **values: Any) -> GPT:
    cfg = golf.compose([*SMALL, "model.compute_dtype=fp32", "tech=[gated_deltanet]", settings(**values), *chosen])
    model = golf.build_model(cfg).double()
    generator = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        if not name.endswith(("decay_log", "step_bias")):
            parameter.data.normal_(0, 0.5, generator=generator)
    return model


def context_of(ids: Tensor, *, within: bool) -> Context:
    nothing = torch.empty(0)
    shared = {PIECES: piece_starts(ids, ids.size(1))} if within else {}
    return Context(ids, nothing, nothing, nothing, shared, ())


def slow(mixer: GatedDeltaNet, x: Tensor) -> Tensor:
    """Return the output `[T, d]` for one document `x` `[T, d]`, token by token and head by head."""
    tech, kd, vd = mixer.tech, mixer.key_dim, mixer.value_dim
    keys, out = mixer.key_heads * kd, []
    projected = torch.cat([x @ part.weight.T for part in (mixer.c_q, mixer.c_k, mixer.c_v)], 1)
    states = [torch.zeros(kd, vd, dtype=x.dtype) for _ in range(mixer.heads)]
    for t in range(len(x)):
        mixed = sum(mixer.filters[i] * projected[t - i] for i in range(tech.taps) if t >= i)
        act = F.silu if tech.features == "silu" else lambda z: torch.where(z > 0, z + 1, z.exp())
        q, k, v = act(mixed[:keys]), act(mixed[keys : 2 * keys]), F.silu(mixed[2 * keys :])
        gates, heads = mixer.c_gates.weight @ x[t], []
        for h in range(mixer.heads):
            shared = h // (mixer.heads // mixer.key_heads) * kd
            q_h, k_h = (part[shared : shared + kd] / part[shared : shared + kd].norm() for part in (q, k))
            v_h = v[h * vd : (h + 1) * vd]
            g = -mixer.decay_log[h].exp() * F.softplus(gates[h] + mixer.step_bias[h])
            beta = torch.sigmoid(gates[mixer.heads + h])
            kept = g.exp() * states[h]
            states[h] = kept + torch.outer(k_h, beta * (v_h - kept.T @ k_h))
            o = states[h].T @ q_h / math.sqrt(kd)
            heads.append(o / (o.square().mean() + torch.finfo(o.dtype).eps).sqrt() if tech.norm else o)
        out.append(mixer.proj.weight @ (torch.cat(heads) * F.silu(mixer.c_z.weight @ x[t])))
    return torch.stack(out)


@torch.no_grad()
@pytest.mark.parametrize("chunk", [1, 7, 16, 64])
@pytest.mark.parametrize("values", [{}, {**PUBLIC, "key_channels": 6, "value_channels": 10}])
def test_chunks_are_the_recurrence_in_each_document(chunk: int, values: dict[str, Any]) -> None:
    mixer: Any = filled(chunk=chunk, **values).blocks[1].attn
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(2, 64, (2, 70), generator=generator)
    ids[0, [0, 20, 23]] = ids[1, [0, 64]] = BOS
    x = torch.randn(2, 70, DIM, dtype=torch.float64, generator=generator)
    found = mixer(x, context_of(ids, within=True))
    for row, start, end in [(0, 0, 20), (0, 20, 23), (0, 23, 70), (1, 0, 64), (1, 64, 70)]:
        assert (found[row, start:end] - slow(mixer, x[row, start:end])).abs().max() <= 1e-12
    across = mixer(x, context_of(ids, within=False))
    assert (across[0] - slow(mixer, x[0])).abs().max() <= 1e-12
    assert (across[0, 20:] - found[0, 20:]).abs().max() > 1e-3


@torch.no_grad()
def test_a_prefix_has_the_logits_that_it_has_alone() -> None:
    model = filled(chunk=16)
    ids = torch.randint(2, 1024, (1, 40), generator=torch.Generator().manual_seed(0))
    whole = model.logits(ids)
    for length in (1, 15, 16, 17, 39):
        torch.testing.assert_close(model.logits(ids[:, :length]), whole[:, :length], rtol=0, atol=1e-12)
    changed = ids.clone()
    changed[0, 20] = 2 + changed[0, 20] % 1000
    other = model.logits(changed)
    assert torch.equal(other[:, :20], whole[:, :20]) and not torch.equal(other[:, 20:], whole[:, 20:])


@torch.no_grad()
def test_packed_documents_are_as_rows_of_their_own() -> None:
    model, alone = filled(*DOCUMENTS, chunk=4), filled(chunk=4)
    ids = torch.randint(2, 1024, (2, 11), generator=torch.Generator().manual_seed(0))
    ids[0, 0] = ids[0, 4] = ids[1, 0] = ids[1, 7] = BOS
    found = model.logits(ids)
    for row, start, end in [(0, 0, 4), (0, 4, 11), (1, 0, 7), (1, 7, 11)]:
        torch.testing.assert_close(found[row, start:end], alone.logits(ids[row : row + 1, start:end])[0])


def test_a_strong_decay_has_finite_gradients() -> None:
    q, k, v = (torch.ones(1, 64, 1, 4, requires_grad=True) for _ in range(3))
    g = torch.full((1, 64, 1), -90.0, requires_grad=True)
    delta_rule(q, k, v, (g, torch.ones(1, 64, 1)), torch.zeros(1, 64), 64).sum().backward()
    assert all(t.grad is not None and t.grad.isfinite().all() for t in (q, k, v, g))


def test_costs_are_those_of_a_count_by_hand_and_by_torch() -> None:
    heads, kd, vd, chunk, tokens = 4, 6, 10, 16, 64
    values = {**PUBLIC, "key_channels": kd, "value_channels": vd, "chunk": chunk}
    cfg = golf.compose([*SMALL, "model.compute_dtype=bf16", "tech=[gated_deltanet]", settings(**values)])
    mixer: Any = golf.build_model(cfg).blocks[1].attn
    weights = DIM * (2 * 2 * kd + 3 * heads * vd + 2 * heads)
    system = chunk * (kd + vd)
    by_hand = 2 * weights + heads * (2 * 2 * chunk * kd + 2 * chunk * vd + 3 * 2 * kd * vd + system)
    assert mixer.flops_per_token(tokens) == pytest.approx(by_hand, rel=0.01)
    assert mixer.flops_per_token(tokens - chunk + 1) > by_hand  # a chunk that is not full costs as much
    x = torch.randn(1, tokens, DIM, dtype=torch.bfloat16, requires_grad=True)
    kept = {part.untyped_storage()._cdata: part for part in mixer.parameters()}
    own = sum(part.untyped_storage().nbytes() for part in kept.values())

    def keep(tensor: Tensor) -> Tensor:
        kept.setdefault(tensor.untyped_storage()._cdata, tensor)
        return tensor

    with FlopCounterMode(display=False) as counter, saved_tensors_hooks(keep, lambda tensor: tensor):
        mixer(x, context_of(torch.zeros(1, tokens, dtype=torch.int64), within=False))
    # Torch does not count the triangular system.
    assert counter.get_total_flops() / tokens + heads * system == pytest.approx(by_hand, rel=0.01)
    nbytes = sum(part.untyped_storage().nbytes() for part in kept.values()) - own - 2 * weights
    assert mixer.kept_bytes_per_token(tokens) == pytest.approx(nbytes / tokens, rel=0.05)


def test_state_and_gates_are_float32_under_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def watched(q: Tensor, k: Tensor, v: Tensor, gates: Any, *others: Any) -> Tensor:
        o = delta_rule(q, k, v, gates, *others)
        seen.append({t.dtype for t in (q, k, v, *gates, o)})
        return o

    monkeypatch.setattr(gated_deltanet, "delta_rule", watched)
    model = golf.build_model(golf.compose([*SMALL, "model.compute_dtype=bf16", "tech=[gated_deltanet]"]))
    model(torch.arange(2, 14)[None], torch.arange(3, 15)[None]).backward()
    assert seen == [{torch.float32}] and model.tok_emb.weight.dtype == torch.bfloat16


@pytest.mark.parametrize(("decays", "low", "high"), [("uniform", 0, 16), ("log_uniform", 1, 8)])
def test_gates_start_in_their_ranges(decays: str, low: float, high: float) -> None:
    cfg = golf.compose([*SMALL, "tech=[gated_deltanet]", settings(heads=512, value_channels=1, decays=decays)])
    mixer: Any = golf.build_model(cfg).blocks[1].attn
    fastest, step = mixer.decay_log.exp(), F.softplus(mixer.step_bias)
    assert low < fastest.min() < low + 0.5 and high - 0.5 < fastest.max() <= high + 1e-4
    assert 0.00099 < step.min() < 0.0012 and 0.085 < step.max() < 0.101


def plainly(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, scale: float, cu_seqlens: Tensor) -> Any:
    """Stand in for the library's function: pieces one after another, in float32."""
    parts = []
    for start, end in itertools.pairwise(cu_seqlens.tolist()):
        q_, k_, v_, g_, b_ = (t[:, start:end].float() for t in (q, k, v, g, beta))
        parts.append(delta_rule(q_ * scale, k_, v_, (g_, b_), torch.zeros(1, end - start), 16))
    return torch.cat(parts, 1), None


@pytest.mark.parametrize("within", [True, False])
def test_the_kernel_gets_pieces_as_a_table(within: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fla_kernel, "fla_function", lambda: plainly)
    ids = torch.full((2, 30), 5)
    ids[0, 7] = ids[1, 11] = BOS
    starts = piece_starts(ids, 30).view(2, 30) if within else torch.zeros_like(ids)
    q, k, v = (F.normalize(torch.randn(2, 30, 3, 4), dim=-1) for _ in range(3))
    gates = -torch.rand(2, 30, 3), torch.rand(2, 30, 3)
    found = fla_kernel.delta_rule_of_fla(q, k, v, gates, starts, torch.float32)
    torch.testing.assert_close(found, delta_rule(q, k, v, gates, starts, 16))


@pytest.mark.gpu
def test_the_kernel_is_the_recurrence_on_a_gpu() -> None:
    pytest.importorskip("fla", reason="flash-linear-attention is not installed")
    ids = torch.full((2, 300), 5, device="cuda")
    ids[0, 70] = ids[1, 111] = BOS
    q, k, v = (F.normalize(torch.randn(2, 300, 4, 64, device="cuda"), dim=-1) for _ in range(3))
    gates = -torch.rand(2, 300, 4, device="cuda"), torch.rand(2, 300, 4, device="cuda")
    starts = piece_starts(ids, 300).view(2, 300)
    found = fla_kernel.delta_rule_of_fla(q, k, v, gates, starts, torch.bfloat16)
    expected = delta_rule(q, k, v, gates, starts, 64)
    assert (found - expected).norm() <= 2e-2 * expected.norm()


def test_without_the_library_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(f"No module named {name}")

    fla_kernel.fla_function.cache_clear()
    monkeypatch.setattr(fla_kernel.importlib, "import_module", missing)
    with pytest.raises(GolfError, match="pip install flash-linear-attention, or use"):
        fla_kernel.fla_function()


@pytest.mark.parametrize(
    ("chosen", "sentence"),
    [
        ("layers:[4]", "names layer 4"),
        ("layers:[0,-4]", "different layers"),
        ("heads:3,key_heads:2", "has to divide the 3 heads"),
    ],
)
def test_what_cannot_be_is_refused(chosen: str, sentence: str) -> None:
    assert sentence in refusal("scale=laptop", "model=4l", "tech=[gated_deltanet]", f"tech.gated_deltanet={{{chosen}}}")


@pytest.mark.slow
def test_a_run_with_gptq_and_low_rank_test_time_training_ends_well(tiny: OwnDataset, runs: Path) -> None:
    # Exclusion stays in the layers of attention; Hessians of all matrices, and factors beside them.
    more = ["tech=[gated_deltanet,xsa,ortho_init]", "tech.gated_deltanet.layers=[0,-1]", "quant=gptq_int6"]
    few = ["schedule.iterations=6", "schedule.warmup_steps=1", "quant.calibration.tokens=512", "eval=ttt_lora"]
    own = [o for o in tiny_overrides(tiny) if not o.startswith("schedule.iterations")]
    result, _ = train_and_score(compose([*own, *more, *few]))
    assert result.state == OK and result.steps == 6, result.reason
