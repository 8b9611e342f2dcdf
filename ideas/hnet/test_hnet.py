"""The chunks against loops in float64, what the cap may not know, documents, compiling, and what runs with it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import golf
from golf.lab.corpora.own_text import OwnDataset, Recipe, make_dataset
from golf.lab.plan.flops import flops_per_token
from golf.launch.launcher import train_and_score
from golf.run.result import OK, VOID
from golf.settings.config import LaunchConfig
from golf.submission.clean_env import clean_environment
from golf.submission.record_folder import requirements
from golf.submission.rehearsal import rehearse
from golf.submission.script.bundle import Bundle
from golf.training.model.build import compile_for_training, shapeless_model
from golf.training.model.documents import across_documents
from golf.training.model.gpt import GPT
from golf.training.model.layers import Context
from golf.training.model.route import Visit
from ideas.hnet import hnet
from ideas.hnet.hnet import PROBABILITY, boundary_probabilities, smoothed, within_cap
from tests.support import compose, make_text, refusal, tiny_overrides

DIM, BOS = 32, 1
SMALL = [
    "model=4l",
    "scale=laptop",
    "data=pydocs_bytes",
    f"model.model_dim={DIM}",
    "model.num_heads=4",
    "model.num_kv_heads=2",
]
DOCUMENTS = ["model.within_documents=true", "eval.documents=true", "data.train_seq_len=64"]


def filled(*chosen: str, cap: int = 2, seed: int = 0) -> GPT:
    """Return a model in float64 in which every part matters, and about half of the tokens want to begin a chunk."""
    cfg = golf.compose([*SMALL, "model.compute_dtype=fp32", "tech=[hnet]", f"tech.hnet.cap={cap}", *chosen])
    model = golf.build_model(cfg).double()
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.5, generator=generator)
    return model


def rows_of(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(2, 260, shape, generator=torch.Generator().manual_seed(seed))


def norm(x: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + torch.finfo(x.dtype).eps).sqrt()


def chosen_one_by_one(p: list[float], cap: int) -> list[bool]:
    """Return which tokens of a piece begin a chunk."""
    chunks, opens = 0, []
    for n, each in enumerate(p):
        opens.append(each >= 0.5 and chunks + 1 <= 1 + n // cap)
        chunks += opens[-1]
    return opens


def run(model: Any, x: Tensor, x0: Tensor, visits: list[Visit]) -> Tensor:
    """Run blocks over a row `[n, d]`, with U-net skips where the visits have some."""
    cos, sin = model.rotary.tables(len(x), like=x)
    context = Context(torch.zeros(1, len(x)), x0[None], cos, sin, {}, ())
    stored: list[Tensor] = []
    x = x[None]
    for visit in visits:
        if visit.joins is not None:
            x = x + model.skip_weights[visit.row] * stored.pop()
        x = model.blocks[visit.block](x, context._replace(visit=visit))
        stored += [x] if visit.stores else []
    return x[0]


def slow_logits(model: Any, ids: Tensor, cap: int) -> tuple[Tensor, list[bool]]:
    """Return the logits `[T, V]` of a row that is one document, and which tokens begin a chunk: loops over the paper's.

    The model has four layers, one of them the encoder and one the decoder.
    """
    x0 = norm(model.tok_emb.weight[ids])
    h = norm(run(model, x0, x0, [Visit(0)]))
    q, k = h @ model.hnet.c_q.weight.T, h @ model.hnet.c_k.weight.T
    p = [torch.ones((), dtype=h.dtype)]
    p += [(1 - q[t] @ k[t - 1] / (q[t].norm() * k[t - 1].norm())) / 2 for t in range(1, len(ids))]
    opens = chosen_one_by_one([each.item() for each in p], cap)
    chosen = torch.stack([h[t] for t in range(len(ids)) if opens[t]])
    m = norm(run(model, chosen, chosen, [Visit(1, stores=True), Visit(2, joins=0)]))
    out, e, chunk = [], torch.zeros_like(h[0]), -1
    for t, is_open in enumerate(opens):
        if is_open:
            chunk += 1
            e = p[t] * m[chunk] + (1 - p[t]) * e
        confidence = p[t] if is_open else 1 - p[t]
        out.append((confidence - confidence.detach() + 1) * e + model.hnet.residual.weight @ h[t])
    y = run(model, torch.stack(out), x0, [Visit(3)])
    raw = norm(y) @ model.tok_emb.weight.T
    return 30 * torch.tanh(raw / 30), opens


@pytest.mark.parametrize("cap", [1, 2, 3, 64])
def test_logits_and_gradients_are_those_of_loops(cap: int) -> None:
    model, ids = filled(cap=cap), rows_of(2, 40)
    found = model.logits(ids)
    slow = [slow_logits(model, row, cap) for row in ids]
    expected = torch.stack([logits for logits, _ in slow])
    assert (found - expected).abs().max() <= 1e-9
    counts = [sum(opens) for _, opens in slow]
    assert min(counts) >= 1 and (cap != 64 or counts == [1, 1]) and (cap != 1 or 10 < min(counts) <= max(counts) < 35)
    weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    names, parameters = zip(*model.named_parameters(), strict=True)
    pairs = [torch.autograd.grad((weights * logits).sum(), parameters) for logits in (found, expected)]
    for name, mine, slowly in zip(names, *pairs, strict=True):
        assert (mine - slowly).norm() <= 1e-9 * slowly.norm() + 1e-12, name
        # With one chunk attention has one place, so the queries and keys choose nothing.
        chooses = name.startswith(("blocks.1.", "blocks.2.")) and any(part in name for part in ("q_gain", "c_q", "c_k"))
        assert slowly.any() or (cap == 64 and chooses), name


@given(st.lists(st.booleans(), min_size=1, max_size=60), st.integers(1, 9), st.data())
def test_room_is_that_of_a_loop_in_every_piece(wanted: list[bool], cap: int, data: Any) -> None:
    begins = [True, *data.draw(st.lists(st.booleans(), min_size=len(wanted) - 1, max_size=len(wanted) - 1))]
    wanted = [w or b for w, b in zip(wanted, begins, strict=True)]
    found = within_cap(torch.tensor([wanted, wanted]), torch.tensor([begins, begins]), cap)
    expected: list[bool] = []
    for start in [i for i, begin in enumerate(begins) if begin]:
        end = next((i for i in range(start + 1, len(begins)) if begins[i]), len(begins))
        expected += chosen_one_by_one([float(w) for w in wanted[start:end]], cap)
    assert found.tolist() == [expected, expected]
    assert cap > 1 or expected == wanted


@pytest.mark.parametrize("chunks", [1, 2, 63, 64, 200])
def test_smoothing_is_the_recurrence(chunks: int) -> None:
    generator = torch.Generator().manual_seed(0)
    v = torch.randn(2, chunks, 3, dtype=torch.float64, generator=generator)
    p = 0.5 + 0.5 * torch.rand(2, chunks, dtype=torch.float64, generator=generator)
    p[:, 0], p[0, chunks // 2], p[1, chunks // 3 + 1 :] = 1, 1, 0.5
    v.requires_grad_(), p.requires_grad_()
    e, expected = torch.zeros(2, 3, dtype=torch.float64), []
    for c in range(chunks):
        e = p[:, c, None] * v[:, c] + (1 - p[:, c, None]) * e
        expected.append(e)
    found, slow = smoothed(v, p), torch.stack(expected, 1)
    assert (found - slow).abs().max() <= 1e-15
    for mine, slowly in zip(*(torch.autograd.grad(y.square().sum(), (v, p)) for y in (found, slow)), strict=True):
        torch.testing.assert_close(mine, slowly, rtol=1e-12, atol=1e-12)


def test_probabilities_are_those_of_the_paper() -> None:
    q, k = torch.tensor([[[1.0, 0], [2, 0], [0, 3], [-1, 0]]]), torch.tensor([[[5.0, 0], [4, 0], [7, 0], [0, 1]]])
    begins = torch.tensor([[True, False, False, False]])
    # Equal, at right angles, opposite.
    assert boundary_probabilities(q, k, begins).tolist() == [[1.0, 0.0, 0.5, 1.0]]


@torch.no_grad()
@pytest.mark.parametrize("cap", [1, 2, 5])
def test_a_prefix_has_the_logits_that_it_has_alone(cap: int) -> None:
    model, ids = filled(cap=cap), rows_of(1, 48)
    whole = model.logits(ids)
    for length in range(1, 48):
        torch.testing.assert_close(model.logits(ids[:, :length]), whole[:, :length], rtol=0, atol=1e-11)


def causality_breaches(model: GPT, ids: Tensor) -> list[int]:
    """Return the places whose token, changed, changes an earlier place of its row or any place of another row."""
    found, whole = [], model.logits(ids)
    for place in range(ids.size(1)):
        for step in (1, 99):
            other = ids.clone()
            other[0, place] = 2 + (other[0, place] - 2 + step) % 258
            changed = (model.logits(other) - whole).abs().amax(-1) > 1e-11
            assert changed[0, place:].any()
            if changed[0, :place].any() or changed[1:].any():
                found.append(place)
    return sorted(set(found))


@torch.no_grad()
@pytest.mark.parametrize("cap", [1, 2, 5])
def test_no_token_changes_an_earlier_place_or_another_row(cap: int) -> None:
    model, ids = filled(cap=cap), rows_of(2, 32)
    assert causality_breaches(model, ids) == []
    for row in range(2):
        torch.testing.assert_close(model.logits(ids[row : row + 1])[0], model.logits(ids)[row], rtol=0, atol=1e-11)


def shared_by_the_batch(wanted: Tensor, begins: Tensor, cap: int) -> Tensor:
    """Give room to the first boundaries of all rows together: a public fault."""
    room = begins.numel() // cap
    return begins | (wanted & (wanted.flatten().cumsum(0) <= room).view_as(wanted))


def dropped_evenly(wanted: Tensor, begins: Tensor, cap: int) -> Tensor:
    """Thin a row's boundaries out evenly where it has too many of them, which its end decides: a public fault."""
    room, count = wanted.size(1) // cap, wanted.cumsum(1)
    share = (room / count[:, -1:]).clamp(max=1)
    return begins | (wanted & ((share * count).floor() > (share * (count - 1)).floor()))


@torch.no_grad()
@pytest.mark.parametrize("fault", [shared_by_the_batch, dropped_evenly])
def test_caps_that_know_too_much_are_found(fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids = filled(cap=3), rows_of(2, 48)
    monkeypatch.setattr(hnet, "within_cap", fault)
    monkeypatch.setattr(hnet.ChunkStream, "slots", lambda *_: 48)
    assert causality_breaches(model, ids)


@pytest.mark.slow
def test_a_run_whose_cap_knows_the_end_of_the_row_is_void(
    tiny: OwnDataset, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hnet, "within_cap", dropped_evenly)
    monkeypatch.setattr(hnet.ChunkStream, "slots", lambda self, model, context: context.ids.size(1))
    result, _ = train_and_score(compose([*tiny_overrides(tiny), "tech=[hnet]", "tech.hnet.cap=3"]))
    assert result.state == VOID and "changes an earlier score" in result.reason


@torch.no_grad()
def test_a_cap_that_is_not_reached_is_none() -> None:
    free, capped = filled(cap=1), filled(cap=2)
    # Two opposite tokens in turn, each three times, through an encoder that adds nothing: a boundary at every change.
    ids = (torch.arange(40)[None] // 3) % 2 + 7
    for model in (free, capped):
        model.tok_emb.weight[8] = -model.tok_emb.weight[7]
        model.blocks[0].attn_scale.zero_(), model.blocks[0].mlp_scale.zero_()
        for name in ("c_q", "c_k"):
            model.hnet.get_submodule(name).weight.copy_(torch.eye(DIM))
    wanted = free.passed(ids)[1][PROBABILITY] >= 0.5
    assert wanted[0].nonzero().flatten().tolist() == [*range(0, 40, 3)]
    torch.testing.assert_close(free.logits(ids), capped.logits(ids), rtol=0, atol=1e-12)
    assert not torch.allclose(filled(cap=1).logits(rows_of(1, 40)), filled(cap=2).logits(rows_of(1, 40)))


@torch.no_grad()
@pytest.mark.parametrize("cap", [1, 3])
def test_packed_documents_are_as_rows_of_their_own(cap: int) -> None:
    model, alone = filled(*DOCUMENTS, cap=cap), filled(cap=cap)
    ids = rows_of(2, 31)
    ids[0, [0, 1, 9]] = ids[1, [0, 27]] = BOS
    found = model.logits(ids)
    for row, start, end in [(0, 0, 1), (0, 1, 9), (0, 9, 31), (1, 0, 27), (1, 27, 31)]:
        expected = slow_logits(alone, ids[row, start:end], cap)[0]
        torch.testing.assert_close(found[row, start:end], expected, rtol=0, atol=1e-9)
    with across_documents(model):
        torch.testing.assert_close(model.logits(ids), alone.logits(ids), rtol=0, atol=1e-11)


@torch.no_grad()
def test_long_documents_are_cut_where_attention_cuts_them() -> None:
    model, alone = filled(*DOCUMENTS, "data.train_seq_len=16"), filled()
    ids = rows_of(1, 40)
    ids[0, [0, 4]] = BOS
    found = model.logits(ids)[0]
    for start, end in [(0, 4), (4, 20), (20, 36), (36, 40)]:
        torch.testing.assert_close(found[start:end], slow_logits(alone, ids[0, start:end], 2)[0], rtol=0, atol=1e-9)


@torch.no_grad()
def test_a_row_of_more_documents_than_places_has_no_score() -> None:
    model = filled(*DOCUMENTS, "data.train_seq_len=256", cap=16)
    ids = rows_of(1, 256)
    # There are places for 65 pieces, and for one chunk in 16 of the other tokens.
    ids[0, :65] = BOS
    assert model.logits(ids).isfinite().all()
    ids[0, :100] = BOS
    assert model.logits(ids).isnan().all()


def test_numbers_stay_finite_at_the_start_and_under_bf16() -> None:
    for dtype in ("fp32", "bf16"):
        cfg = golf.compose([*SMALL, f"model.compute_dtype={dtype}", "tech=[hnet,chunk_ratio]"])
        model = golf.build_model(cfg)
        # Repeated tokens have a cosine of one, and an own row for each.
        ids = torch.tensor([[1, 5, 5, 5, 6, 7, 7, 8], [9, 9, 9, 9, 9, 9, 9, 9]])
        loss = model(ids, ids.roll(-1, 1))
        loss.backward()
        grads = {name: p.grad for name, p in model.named_parameters()}
        assert loss.isfinite() and all(g is not None and g.isfinite().all() for g in grads.values())
        assert grads["hnet.residual.weight"].any() and grads["hnet.c_q.weight"].any()
        p = model.passed(ids)[1][PROBABILITY]
        assert p.dtype == torch.float32 and p[:, 0].tolist() == [1, 1] and p[1, 1:].max() < 1e-2


@pytest.mark.slow
def test_the_inner_layers_cost_what_their_chunks_cost() -> None:
    def flops(cap: int) -> float:
        chosen = ["tech=[hnet]", f"tech.hnet.cap={cap}", "data.train_seq_len=64"]
        cfg = golf.compose([*SMALL, *chosen])
        return flops_per_token(cfg, shapeless_model(cfg)).total

    # Two of four layers run on chunks: weights 2·6, and scores and values over half a row of chunks.
    layer = 2 * DIM * DIM + 2 * DIM * DIM // 2 + 2 * DIM * 2 * DIM
    chunks = {cap: 1 + 63 // cap for cap in (1, 4)}
    inner = {cap: 2 * n / 64 * (6 * layer + 6 * DIM * n) for cap, n in chunks.items()}
    assert flops(1) - flops(4) == pytest.approx(inner[1] - inner[4], rel=0.02)


def test_settings_without_inner_layers_are_refused() -> None:
    said = refusal(*SMALL, "tech=[hnet]", "tech.hnet.encoder_layers=2", "tech.hnet.decoder_layers=2")
    assert "leaves none between them" in said


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> OwnDataset:
    folder = tmp_path_factory.mktemp("bytes")
    for seed in range(40):
        (folder / f"{seed:02}.txt").write_text(make_text(3, seed))
    return make_dataset([folder], folder, Recipe("raw", 0, val_every=6, is_bytes=True))


def on_bytes(data: OwnDataset, *more: str) -> list[str]:
    own = [o for o in tiny_overrides(data) if not o.startswith(("data.tokenizer_path", "data.train_seq_len"))]
    places = [f"{key}={value}" for key, value in data.settings().items()]
    return [*own, *places, "data.train_seq_len=64", "tech=[hnet,chunk_ratio]", *more]


@pytest.mark.slow
@pytest.mark.parametrize("nproc", [1, 2])
def test_a_run_on_bytes_by_document_ends_well(nproc: int, data: OwnDataset, runs: Path) -> None:
    more = ["model.within_documents=true", "data.loader=packed", "eval.documents=true", f"launch.nproc={nproc}"]
    result, _ = train_and_score(compose(on_bytes(data, *more, "eval.stride=16")))
    assert result.state == OK, result.reason
    assert result.post_quant is not None and 0 < result.post_quant.val_bpb < 9


@pytest.mark.slow
def test_a_run_with_gptq_and_low_rank_test_time_training_ends_well(data: OwnDataset, runs: Path) -> None:
    result, _ = train_and_score(compose(on_bytes(data, "quant=gptq_int6", "eval=ttt_lora")))
    assert result.state == OK, result.reason


@pytest.mark.slow
def test_the_script_is_the_framework(data: OwnDataset, tmp_path: Path) -> None:
    cfg = compose([*on_bytes(data), "eval.documents=true", "model.within_documents=true", "data.loader=packed"])
    bundle = Bundle(cfg)
    python = clean_environment(tmp_path / "clean", requirements(bundle))
    found = rehearse(cfg, bundle.wrapped, python, tmp_path, steps=4)
    assert found.losses > 4 and math.isfinite(found.val_bpb)


@pytest.mark.slow
def test_a_step_compiles_into_one_graph() -> None:
    chosen = ["model.compute_dtype=fp32", "model.num_layers=3", "tech=[hnet,chunk_ratio]", *DOCUMENTS]
    cfg = golf.compose([*SMALL, *chosen])
    model, compiled = golf.build_model(cfg), golf.build_model(cfg)
    compile_for_training(compiled, LaunchConfig(compile="full"))
    ids = rows_of(2, 65)
    ids[:, [0, 33]] = BOS
    losses = []
    for each in (model, compiled):
        loss = each(ids[:, :-1], ids[:, 1:], ())
        loss.backward()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    for (name, one), (_, other) in zip(model.named_parameters(), compiled.named_parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-6, msg=name)
