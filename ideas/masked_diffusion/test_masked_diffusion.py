"""Chain, bound and objective against sums over all texts, masks and orders; what is refused, runs, ranks, a script."""

from __future__ import annotations

import itertools
import math
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor

import golf
from golf.errors import GolfError
from golf.lab.corpora.own_text import OwnDataset
from golf.lab.proofs.scoring_proofs import document_leaks, scoring_breaches
from golf.launch.launcher import train_and_score
from golf.run.result import OK, VOID
from golf.settings.config import Config, ModelConfig
from golf.submission.rehearsal import rehearse
from golf.submission.script.bundle import Bundle
from golf.training.model.build import build_model
from golf.training.model.gpt import GPT
from ideas.masked_diffusion import masked_diffusion
from ideas.masked_diffusion.bound import bounds_of, main, step_weights
from ideas.masked_diffusion.masked_diffusion import MaskedDiffusion, drawn, drawn_masks, masked_nats, masked_objective
from tests.support import assert_compiled_is_eager, compose, golf_main, only_run, refusal, tiny_overrides

VOCAB, LENGTH = 3, 3
TEXTS = torch.tensor(list(itertools.product(range(VOCAB), repeat=LENGTH)))
MASKS = torch.tensor(list(itertools.product([False, True], repeat=LENGTH)))
ORDERS = list(itertools.permutations(range(LENGTH)))
PROVED = ["model=4l", "scale=laptop", "model.model_dim=32", "model.num_heads=2", "model.num_kv_heads=1"]
DOCUMENTS = ["model.within_documents=true", "eval.documents=true", "data.loader=shuffled"]
Table = dict[tuple[bool, ...], Tensor]  # nats [27, 3] of the tokens of all texts under each mask


def small(vocab: int = VOCAB, layers: int = 2, **settings: float) -> GPT:
    """A float64 model in which every part matters."""
    shape = ModelConfig(
        vocab_size=vocab, num_layers=layers, model_dim=16, num_heads=4, num_kv_heads=2, compute_dtype="fp32"
    )
    cfg = Config(model=shape, tech={"masked_diffusion": MaskedDiffusion(**settings)})
    model = build_model(cfg).double()
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.7, generator=generator)
    return model


def law(seed: int = 0) -> Tensor:
    """Return probabilities of all texts, float64 `[27]`, whose tokens depend on each other."""
    return torch.randn(len(TEXTS), generator=torch.Generator().manual_seed(seed), dtype=torch.float64).mul(2).softmax(0)


def posteriors(p: Tensor) -> Table:
    """Return the nats of tokens given those that are not masked, under the law `p`, by sums over all texts."""
    same, table = TEXTS[None] == TEXTS[:, None], {}
    for mask in MASKS:
        agree = (same | mask).all(2)  # [27, 27]: texts that agree with what is visible
        joint = ((agree[..., None] & same) * p[:, None]).sum(1)
        table[tuple(mask.tolist())] = -(joint / (agree * p).sum(1, keepdim=True)).log()
    return table


@torch.no_grad()
def of_model(model: GPT) -> Table:
    """Return the nats of the model's tokens behind the token 2, by one pass for each mask."""
    table = {}
    for mask in MASKS:
        read = torch.cat((torch.full_like(TEXTS[:, :1], 2), TEXTS.masked_fill(mask, VOCAB)), 1)
        logits = model.softcap(model.head(model.pass_once(read, ())[0]))[:, 1:]
        table[tuple(mask.tolist())] = -logits.log_softmax(-1).gather(2, TEXTS[..., None])[..., 0]
    return table


def chains(table: Table, order: Sequence[int]) -> Tensor:
    """Return −Σ log p(x_π(i) | what comes before in the order π, and masks) of all texts, `[27]`."""
    total = torch.zeros(len(TEXTS), dtype=torch.float64)
    for i, place in enumerate(order):
        total += table[tuple(place not in order[:i] for place in range(LENGTH))][:, place]
    return total


def mean_of_orders(table: Table) -> Tensor:
    return torch.stack([chains(table, order) for order in ORDERS]).mean(0)


def summed_over_masks(table: Table, ratio: float) -> Tensor:
    """Return E Σ_masked nats `[27]` with each token masked with probability `ratio`, by all eight masks."""
    total = torch.zeros(len(TEXTS), dtype=torch.float64)
    for mask, nats in table.items():
        share = ratio ** sum(mask) * (1 - ratio) ** (LENGTH - sum(mask))
        total += share * (nats * torch.tensor(mask)).sum(1)
    return total


def exact_bounds(table: Table, steps: int) -> Tensor:
    ratios = [k / steps for k in range(1, steps + 1)]
    weighted = zip(ratios, step_weights(ratios), strict=True)
    return sum((w * summed_over_masks(table, r) for r, w in weighted), torch.zeros(len(TEXTS), dtype=torch.float64))


def rows() -> tuple[Tensor, Tensor]:
    """Return inputs and targets `[27, 3]`: all texts behind the token 2."""
    return torch.cat((torch.full_like(TEXTS[:, :1], 2), TEXTS[:, :-1]), 1), TEXTS


@torch.no_grad()
@pytest.mark.parametrize("order", ORDERS)
def test_probabilities_of_all_texts_sum_to_one_in_every_order(order: tuple[int, ...]) -> None:
    model = small()
    found = chains(of_model(model), order)
    assert torch.exp(-found).sum().item() == pytest.approx(1.0, abs=1e-12)
    assert found.std() > 0.1


@torch.no_grad()
def test_the_score_is_the_chain_from_left_to_right_and_no_other() -> None:
    model = small()
    scored = model.token_losses(*rows()).sum(1).double()
    table = of_model(model)
    orders = {order: chains(table, order) for order in ORDERS}
    torch.testing.assert_close(scored, orders[0, 1, 2], rtol=1e-6, atol=1e-6)
    for order in ORDERS[1:]:
        assert (scored - orders[order]).abs().max() > 0.05
    assert torch.exp(-scored).sum().item() == pytest.approx(1.0, abs=1e-6)


@torch.no_grad()
@pytest.mark.parametrize("pass_tokens", [1, 40, 10**6])
def test_the_chain_is_a_loop_over_rows_and_tokens(pass_tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masked_diffusion, "PASS_TOKENS", pass_tokens)
    model = small(vocab=20)
    ids = torch.randint(20, (3, 8), generator=torch.Generator().manual_seed(1))
    targets = torch.randint(20, (3, 7), generator=torch.Generator().manual_seed(2))
    found = model.token_losses(ids[:, :-1], targets)
    for row in range(3):
        for t in range(7):
            read = [*ids[row, : t + 1].tolist(), *[20] * (7 - t)]
            logits = model.softcap(model.head(model.pass_once(torch.tensor([read]), ())[0]))[0, t + 1]
            expected = logits.logsumexp(0) - logits[targets[row, t]]
            assert found[row, t].item() == pytest.approx(expected.item(), rel=1e-5)


def test_the_bound_is_above_a_known_law_and_reaches_it_with_more_steps() -> None:
    p = law()
    table, entropy = posteriors(p), -(p * p.log()).sum()
    excess = {k: ((p * exact_bounds(table, k)).sum() - entropy).item() for k in (1, 4, 64, 1024)}
    shares = [torch.zeros(VOCAB, dtype=torch.float64).index_add(0, TEXTS[:, i], p) for i in range(LENGTH)]
    # One step reveals all tokens at once: what is left is their total correlation.
    assert excess[1] == pytest.approx((sum(-(s * s.log()).sum() for s in shares) - entropy).item(), abs=1e-12)
    assert excess[1] > 0.3 and excess[1] > excess[4] > excess[64] > excess[1024] > 0
    assert excess[64] < 0.03 * excess[1] and excess[1024] < 0.002 * excess[1]
    # It is one of each text, too, whatever the model.
    table = of_model(small())
    torch.testing.assert_close(exact_bounds(table, 1024), mean_of_orders(table), rtol=0, atol=0.03)
    assert torch.exp(-exact_bounds(table, 4)).sum() <= 1


def test_public_forms_are_below_a_known_law_and_refused() -> None:
    p = law()
    table, entropy = posteriors(p), -(p * p.log()).sum()
    grid = [0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95]
    # PR #1403: the trapezoid rule over these ratios, without what is below and above.
    means = torch.stack([(p * summed_over_masks(table, r)).sum() / r for r in grid])
    assert torch.trapezoid(means, torch.tensor(grid, dtype=torch.float64)) - entropy < -0.1
    # A tenth of the tokens is never masked: it is seen for nothing.
    kept = [0.9 * k / 64 for k in range(1, 65)]
    weights = [(r - s) / r for r, s in zip(kept, [0.0, *kept], strict=False)]
    unpaid = sum(w * (p * summed_over_masks(table, r)).sum() for w, r in zip(weights, kept, strict=True))
    assert unpaid - entropy < -0.1
    for ratios in (grid, kept, [0.5, 0.5, 1.0], [0.0, 1.0], [0.7, 0.3, 1.0]):
        with pytest.raises(GolfError, match="no bound"):
            step_weights(ratios)
    weights = step_weights([0.2, 0.3, 1.0])
    assert sum(w * r for w, r in zip(weights, [0.2, 0.3, 1.0], strict=True)) == pytest.approx(1.0)


@torch.no_grad()
def test_drawn_masks_estimate_the_bound_within_their_error() -> None:
    model = small()
    found = bounds_of(lambda *batch: masked_nats(model, *batch), *rows(), steps=4, samples=50)
    error = (found.var(0) / 50).sqrt()
    expected = exact_bounds(of_model(model), 4)
    assert ((found.mean(0) - expected).abs() / error).max() < 4
    assert abs(found.mean() - expected.mean()) < 4 * error.square().sum().sqrt() / 27


@torch.no_grad()
def test_the_objective_is_that_of_a_loop_and_its_mean_is_that_of_all_orders() -> None:
    model = small(layers=1, least_ratio=0.0)
    ids, targets = rows()
    step = model.get_buffer("mask_step")
    step.fill_(7)
    masked, ratio = drawn_masks(targets, step, 0.0)
    table, total = of_model(model), 0.0
    for row, mask in enumerate(masked.tolist()):
        total += sum(table[tuple(mask)][row, t].item() / ratio[row].item() for t in range(3) if mask[t])
    assert model(ids, targets, ()).item() == pytest.approx(total / 81, rel=1e-6)
    # Over many draws t comes from everywhere between 0 and 1, where the bound is the mean over all orders.
    many = []
    for number in range(30):
        step.fill_(number)
        many.append(masked_objective(model, ids.repeat(40, 1), targets.repeat(40, 1), least=0.0).item())
    expected = mean_of_orders(table).mean().item() / 3
    assert abs(np.mean(many) - expected) < 4 * np.std(many) / math.sqrt(len(many)) < 0.05 * expected


def test_masks_are_uniform_stratified_and_follow_from_text_and_step() -> None:
    text = torch.randint(1000, (64, 256), generator=torch.Generator().manual_seed(0))
    masked, ratio = drawn_masks(text, torch.tensor(3), 0.1)
    assert 0.1 <= ratio.min() < 0.12 and 0.98 < ratio.max() <= 1.0
    assert (ratio.flatten().sort().values.diff() - 0.9 / 64).abs().max() < 1e-6
    spread = (ratio * (1 - ratio) / 256).sqrt().clamp(min=1e-3)
    assert ((masked.float().mean(1, keepdim=True) - ratio) / spread).abs().max() < 4.5
    again = drawn_masks(text, torch.tensor(3), 0.1)
    assert torch.equal(masked, again[0]) and torch.equal(ratio, again[1])
    assert not torch.equal(masked, drawn_masks(text, torch.tensor(4), 0.1)[0])
    numbers = torch.cat([drawn(text, torch.tensor(step))[0].flatten() for step in range(4)])
    assert numbers.min() >= 0 and numbers.max() < 1
    counts = torch.histc(numbers, 64, 0, 1)
    expected = numbers.numel() / 64
    assert ((counts - expected).square() / expected).sum() < 63 + 5 * math.sqrt(126)
    rows = numbers.view(-1, 256) - 0.5
    # Neighbours in the row, in the batch, and draws of one token are independent.
    for one, other in ((rows[:, 1:], rows[:, :-1]), (rows[1:], rows[:-1]), (rows[64:], rows[:-64])):
        assert abs((one * other).mean().item() * 12) < 4.5 / math.sqrt(one.numel())


def test_the_mask_is_a_row_behind_the_vocabulary_without_a_logit() -> None:
    model = small(vocab=20)
    rows = model.tok_emb(torch.tensor([[0, 20, 19]]))[0]
    assert torch.equal(rows, torch.stack((model.tok_emb.weight[0], model.tok_emb.mask[0], model.tok_emb.weight[19])))
    assert model.logits(torch.tensor([[1, 2]])).shape == (1, 2, 20)
    rows[1].sum().backward()
    assert model.tok_emb.mask.grad.eq(1).all() and not model.tok_emb.weight.grad.any()


@torch.no_grad()
def test_masked_tokens_see_both_sides_and_scores_the_left_one() -> None:
    model = small(vocab=20)
    ids = torch.randint(19, (1, 9), generator=torch.Generator().manual_seed(3))
    other = ids.clone()
    other[0, 6] = 19
    masked = torch.zeros(1, 8, dtype=torch.bool)
    masked[0, 2] = True
    both = [masked_nats(model, text[:, :-1], text[:, 1:], masked)[0, 2] for text in (ids, other)]
    assert both[0] != both[1]
    changed = (model.hidden(ids) != model.hidden(other)).any(-1)[0]
    assert changed.tolist() == [False] * 6 + [True] * 3


def by_document() -> tuple[GPT, GPT, Tensor, list[tuple[int, int]]]:
    """Return a model that keeps documents apart, one of the same weights that does not, ids `[1, 31]` and documents."""
    shape = ["model.num_layers=2", "model.compute_dtype=fp32", "data.train_seq_len=8", "eval.documents=true"]
    cfg = golf.compose(
        [*PROVED, *shape, "data.train_batch_tokens=64", "data.micro_batches=1", "tech=[masked_diffusion]"]
    )
    cfg.model.within_documents = True
    apart, plain = build_model(cfg).double(), build_model(cfg).double()
    cfg.model.within_documents = False
    plain = build_model(cfg).double()
    generator = torch.Generator().manual_seed(0)
    for parameter in apart.parameters():
        parameter.data.normal_(0, 0.5, generator=generator)
    plain.load_state_dict(apart.state_dict())
    ids = torch.randint(2, 1024, (1, 31), generator=generator)
    ids[0, [0, 5, 17, 18]] = 1
    # The third begins and ends with one token, and the second and last are cut after eight.
    return apart, plain, ids, [(0, 5), (5, 13), (13, 17), (17, 18), (18, 26), (26, 31)]


@torch.no_grad()
def test_the_chain_by_document_is_a_loop_over_pieces() -> None:
    apart, plain, ids, pieces = by_document()
    found = apart.hidden(ids, ())[0]
    for start, end in pieces:
        for t in range(start, end):
            # A piece is eight tokens and the one behind, so that its length is not read.
            read = [*ids[0, start : t + 1].tolist(), *[1024] * (8 + start - t)]
            expected = plain.pass_once(torch.tensor([read]), ())[0][0, t + 1 - start]
            torch.testing.assert_close(found[t], expected)


@torch.no_grad()
def test_training_by_document_reads_each_as_if_it_were_alone() -> None:
    apart, plain, ids, _ = by_document()
    masked = torch.rand(1, 30, generator=torch.Generator().manual_seed(5)) < 0.5
    masked[0, [4, 16, 17]] = torch.tensor([False, True, False])
    found = masked_nats(apart, ids[:, :-1], ids[:, 1:], masked, ())
    read = torch.cat((ids[:, :1], ids[:, 1:].masked_fill(masked, 1024)), 1)
    # The masked beginning of a document at 17 hides that it begins.
    for start, end in ((0, 5), (5, 18), (18, 31)):
        hidden = plain.pass_once(read[:, start:end], ())[0]
        first = max(start, 1)
        expected = plain.losses_of(hidden[:, first - start :], ids[:, first:end])
        expected = expected.masked_fill(~masked[:, first - 1 : end - 1], 0.0)
        torch.testing.assert_close(found[:, first - 1 : end - 1], expected)


@torch.no_grad()
def test_documents_do_not_see_each_other() -> None:
    cfg = golf.compose([*PROVED, *DOCUMENTS, "model.num_layers=2", "tech=[masked_diffusion]"])
    assert document_leaks(cfg) == []
    apart, plain, ids, _ = by_document()
    other = ids.clone()
    other[0, 6:17] += 1
    for model, equal in ((apart, True), (plain, False)):
        one, two = (model.hidden(text, ())[0, 18:] for text in (ids, other))
        assert torch.equal(one, two) == equal


def seen_from_both_sides(model: GPT, ids: Tensor, active: Any = None) -> Any:
    """Let every target see the others and itself: a pseudo-likelihood."""
    states, shared = model.pass_once(torch.nn.functional.pad(ids, (0, 1), value=model.tok_emb.num_embeddings), active)
    return states[:, 1:], shared


def masked_by_two(model: GPT, ids: Tensor, active: Any = None) -> Any:
    """Mask every target and see all others: the pseudo-likelihood of PR #1053."""
    tokens, mask = ids.size(1), model.tok_emb.num_embeddings
    states = []
    for t in range(tokens):
        read = torch.nn.functional.pad(ids, (0, 1), value=mask)
        read[:, t + 1] = mask
        states.append(model.pass_once(read, active)[0][:, t + 1])
    return torch.stack(states, 1), {}


@pytest.mark.slow
@pytest.mark.parametrize("fault", [seen_from_both_sides, masked_by_two])
def test_scores_from_both_sides_are_found(fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = golf.compose([*PROVED, "model.num_layers=2", "tech=[masked_diffusion]"])
    assert scoring_breaches(cfg) == []
    monkeypatch.setattr(masked_diffusion, "read_as_chain", fault)
    assert any("changes an earlier score" in breach for breach in scoring_breaches(cfg))


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["eval.stride=64"], "set eval.stride=0"),
        (["eval=ttt_lora"], "set eval.ttt.method=off"),
        (["eval=ttt_sgd", "eval.stride=0"], "set eval.ttt.method=off"),
        (["data.loader=packed", "model.within_documents=true", "eval.documents=true"], "set data.loader=shuffled"),
        (["quant=gptq_int6"], "choose another quant"),
        (["launch.compile=full"], "set launch.compile=blocks"),
        (["tech=[masked_diffusion,hnet]"], "exclude each other"),
        (["tech=[masked_diffusion,z_loss]"], "exclude each other"),
        (["tech=[masked_diffusion,window_sink]"], "exclude each other"),
        (["tech=[masked_diffusion,token_ngram]", "eval.stride=64"], "masked_diffusion does not go with"),
    ],
)
def test_what_does_not_combine_is_refused(overrides: list[str], said: str) -> None:
    assert said in refusal(*PROVED, "tech=[masked_diffusion]", *overrides)


def test_a_kernel_that_looks_back_alone_is_refused_for_documents() -> None:
    cfg = golf.compose([*PROVED, "eval.documents=true", "tech=[masked_diffusion]"])
    cfg.model.attention = "varlen"  # which a machine without a GPU refuses before this
    with pytest.raises(GolfError, match=r"set model\.attention=sdpa"):
        cfg.tech["masked_diffusion"].check(cfg)


def on(data: OwnDataset, *more: str) -> list[str]:
    return [*tiny_overrides(data), "tech=[masked_diffusion]", "eval.val_loss_every=0", *more]


@pytest.mark.slow
def test_a_run_ends_well_and_its_bound_is_printed(
    tiny: OwnDataset, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result, _ = train_and_score(compose(on(tiny)))
    assert result.state == OK, result.reason
    assert result.post_quant is not None and result.post_quant.how == "standard"
    folder = only_run(runs)
    capsys.readouterr()
    assert main([str(folder), "--steps", "4"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("bound_bpb ") and "upper bound" in said and "no val_bpb" in said
    # A model that knows little loses little by seeing less.
    assert float(said.split()[1]) == pytest.approx(result.post_quant.val_bpb, rel=0.1)
    assert "bound" not in (folder / "result.json").read_text()
    with pytest.raises(GolfError, match="at least 2"):
        main([str(folder), "--samples", "1"])


@pytest.mark.slow
def test_a_run_by_document_ends_well(tiny: OwnDataset, runs: Path) -> None:
    result, _ = train_and_score(compose(on(tiny, *DOCUMENTS)))
    assert result.state == OK, result.reason
    assert result.post_quant is not None and result.post_quant.how == "standard by document"
    with pytest.raises(GolfError, match="scored by document"):
        main([str(only_run(runs))])


@pytest.mark.slow
def test_a_run_that_sees_its_targets_is_void(tiny: OwnDataset, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masked_diffusion, "read_as_chain", masked_by_two)
    result, _ = train_and_score(compose(on(tiny)))
    assert result.state == VOID and "changes an earlier score" in result.reason


@pytest.mark.slow
def test_two_ranks_train_and_score_as_one_does(tiny: OwnDataset, runs: Path) -> None:
    for nproc in (1, 2):
        done = golf_main(*on(tiny, f"launch.nproc={nproc}", f"name=ranks{nproc}"))
        assert done.returncode == 0, done.stderr
    one, two = (
        safetensors.torch.load_file(next(runs.glob(f"ranks{n}-*/seed*")) / "final_model.safetensors") for n in (1, 2)
    )
    assert "tok_emb.mask" in one
    for name, tensor in one.items():
        torch.testing.assert_close(two[name].float(), tensor.float(), rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_the_script_is_the_framework(tiny: OwnDataset, tmp_path: Path) -> None:
    cfg = compose(on(tiny))
    found = rehearse(cfg, Bundle(cfg).readable.encode(), Path(sys.executable), tmp_path, steps=4)
    assert found.losses > 4 and math.isfinite(found.val_bpb)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile on a CPU needs g++")
def test_compiled_blocks_train_as_eager_ones_do() -> None:
    """`launch.compile=full` is refused, so no other test compiles this model."""
    torch._dynamo.reset()
    sizes = ["data.train_seq_len=16", "data.train_batch_tokens=256", "data.micro_batches=4"]
    cfg = compose([*PROVED, *sizes, "tech=[masked_diffusion]", "model.compute_dtype=fp32", "launch.device=cpu"])
    assert_compiled_is_eager(cfg, "blocks")
