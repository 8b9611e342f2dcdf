"""Phased test-time training of low-rank factors: parity with the public script, and the recipe written out slowly."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import re
from typing import Any

import numpy as np
import pytest
import torch

from golf.lab.corpora.own_text import OwnDataset
from golf.lab.proofs.scoring_proofs import unreached_phases
from golf.settings.config import Config, TTTRecipe
from golf.settings.scoring_config import PhasesConfig, TTTConfig
from golf.training.data.dataset import Dataset, open_dataset
from golf.training.model.build import shapeless_model
from golf.training.model.documents import separate_documents
from golf.training.model.gpt import GPT
from golf.training.ranks import Ranks
from golf.training.scoring import ttt_lora
from golf.training.scoring.document_queue import (
    document_batches,
    forwarded_tokens,
    list_documents,
    pause_after,
    plan_segments,
)
from golf.training.scoring.lora import BatchLoRA
from golf.training.scoring.phases import phase_documents
from golf.training.scoring.scorer import Scorer
from golf.training.scoring.ttt_lora import LoraScoring, chunk_batch, lora_segments
from tests.support import compose, parity, tiny_overrides
from tests.training.scoring.small import SEQ_LEN, Observed, on_ranks, small_model, small_tally, small_tokens
from tests.training.techniques.test_stacks import LQER27, april_overrides, of_lqer27

PHASED = [
    "eval.documents=true",
    "eval.dtype=fp32",
    *("launch.device=cpu", "launch.compile=off"),
    "eval.ttt.lora_targets=[q,k,v,o,mlp,head]",
    "eval.ttt.method=lora",
    *(
        "eval.ttt.lora_per=application",
        "eval.ttt.lora_a=kept",
        "eval.ttt.lora_windows=document",
        "eval.ttt.lora_queue=upstream",
    ),
    *("eval.ttt.lora_beta1=0", "eval.ttt.lora_beta2=0.99", "eval.ttt.lora_weight_decay=0.5"),
]
NAMES = {"q": "q_loras", "k": "k_loras", "v": "v_loras", "o": "o_loras", "mlp": "mlp_loras"}


def overrides_of(env: dict[str, Any]) -> list[str]:
    ttt = {
        "lora_rank": env["TTT_LORA_RANK"],
        "lora_alpha": env["TTT_LORA_ALPHA"],
        "lr": env["TTT_LORA_LR"],
        "chunk_tokens": env["TTT_CHUNK_SIZE"],
        "seq_len": env["TTT_EVAL_SEQ_LEN"],
        "batch_seqs": env["TTT_BATCH_SIZE"],
        "lora_phases.count": env["PHASED_TTT_NUM_PHASES"],
        "lora_phases.documents": env["PHASED_TTT_PREFIX_DOCS"],
        "lora_phases.lr": env["GLOBAL_TTT_LR"],
        "lora_phases.chunk_tokens": env["GLOBAL_TTT_CHUNK_TOKENS"],
        "lora_phases.batch_seqs": env["GLOBAL_TTT_BATCH_SEQS"],
        "lora_phases.order": "upstream",
    }
    return [f"data.train_seq_len={env['TRAIN_SEQ_LEN']}", *(f"eval.ttt.{key}={value}" for key, value in ttt.items())]


FIRST_LANE = 5
# Which of the script's sets of factors is the n-th that is made here: it makes the first that it reuses beforehand.
MADE_HERE = (1, 0, 2, 3)  # where the first batch is a short one


def recorded_start(arrays: dict[str, np.ndarray], number: int, lora: BatchLoRA) -> BatchLoRA:
    """Put the script's initial values of its `number`-th set of factors into `lora`."""
    visits = len([key for key in arrays if key.startswith(f"lora_A/{number}/k_loras")])
    targets = [target for target in NAMES if target in lora.ttt.lora_targets]
    keys = [f"{NAMES[target]}.{visit}" for visit in range(visits) for target in targets] + ["lm_head_lora"]
    with torch.no_grad():
        for factors, key in zip(lora.all_factors(), keys, strict=True):
            factors.a.copy_(torch.from_numpy(arrays[f"lora_A/{number}/{key}"]))
    return lora


def case_config(env: dict[str, Any], effective: dict[str, Any], *overrides: str) -> Config:
    stretch = f"{{first:{env['LOOP_START']},last:{env['LOOP_END']},passes:{env['NUM_LOOPS'] + 1}}}"
    model = [f"tech.parallel_lanes.first={FIRST_LANE}", f"tech.recurrence={stretch}"]
    return compose([*LQER27, *april_overrides(effective), *model, *PHASED, *overrides_of(env), *overrides])


@pytest.mark.slow
def test_parity_with_the_public_script(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every chunk's score and the weights after the last phase, float32 as in the case."""
    arrays, config = parity("phased_lora_ttt27")
    assert_parity(case_config(config["env"], config["effective"]), arrays, config, (FIRST_LANE, MADE_HERE), monkeypatch)


def assert_parity(
    cfg: Config,
    arrays: dict[str, np.ndarray],
    config: dict[str, Any],
    case: tuple[int, tuple[int, ...]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Compare a run of `cfg`; `case` has the first layer in lanes, and the sets of factors in the order of use here."""
    first_lane, made = case[0], iter(case[1])
    plain_new = LoraScoring._new_factors
    monkeypatch.setattr(
        LoraScoring,
        "_new_factors",
        lambda self, batch: recorded_start(arrays, next(made), plain_new(self, batch)),
    )
    monkeypatch.setattr(ttt_lora, "weights_restored", lambda model: contextlib.nullcontext())
    tokens, observed = arrays["val_tokens"], Observed()
    dataset = Dataset([], [], tokens, arrays["val_bytes"][1:].astype(np.int16), "")
    scorer = Scorer(cfg, dataset, Ranks())
    found = scorer.test_time_trained(of_lqer27(arrays, "param", first_lane), observe=observed)
    nats = observed.per_target(tokens.size - 1)
    for start, targets, expected in zip(arrays["doc_start"], arrays["doc_len"] - 1, arrays["doc_nats"], strict=True):
        assert nats[start : start + targets].mean() == pytest.approx(expected / targets, abs=1e-6)
    assert found.val_bpb == pytest.approx(config["ttt"]["val_bpb"], rel=1e-6)
    weights = scorer.model.state_dict()
    for name, value in of_lqer27(arrays, "final", first_lane).items():
        assert (weights[name] - value).norm() <= 1e-6 * value.norm() + 1e-9, name


@pytest.mark.slow
def test_parity_with_short_chunks_and_no_factors_for_queries_and_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """PR #2014. Its asymmetric cap has two scalars of 30 that nothing trains, which is the plain cap."""
    arrays, config = parity("shortdoc_noqv2014")
    env, first_lane = config["env"], config["env"]["PARALLEL_START_LAYER"]
    steps = [pair.split(":") for pair in env["TTT_SHORT_SCORE_FIRST_STEPS"].split(",")]
    chunks = "[" + ",".join(f"[{most},{size}]" for most, size in steps) + "]"
    no_qv = ["data.train_batch_tokens=8256", "eval.ttt.lora_targets=[k,o,mlp,head]", f"eval.ttt.lora_chunks={chunks}"]
    rate = f"eval.ttt.lr={env['TTT_LORA_LR'] * env['TTT_LOCAL_LR_MULT']}"
    cfg = case_config(env, config["effective"], f"tech.parallel_lanes.first={first_lane}", *no_qv, rate)
    assert_parity(cfg, arrays, config, (first_lane, (0, 1)), monkeypatch)


@pytest.mark.parametrize("window", ["document", "whole_chunks"])
def test_parity_of_the_chunks_of_short_documents(window: str) -> None:
    """Chunks, windows and the batches of a queue as in PR #2014; windows by default go on to the end of the chunk."""
    arrays, config = parity("shortchunks2014")
    env, length = config["env"], arrays["length"]
    recipe = TTTRecipe(0.01, env["TTT_CHUNK_SIZE"], 24, env["TTT_EVAL_SEQ_LEN"], config["parsed_steps"])
    sizes = np.array([recipe.chunk_for(targets) for targets in (length - 1).tolist()])
    assert (sizes == arrays["chunk"]).all() and (-(-(length - 1) // sizes) == arrays["chunks"]).all()
    tokens = np.arange(8192, dtype=np.uint16)
    for total, chunk, start, size, offset, scored in arrays["windows"].tolist():
        documents, ct = np.array([[0, total - 1]]), recipe.chunk_for(total - 1)
        batch = chunk_batch(tokens, documents, chunk, ct, recipe.seq_len, window)
        assert batch.scored.sum() == scored
        if window == "document":
            assert batch.ids[0].tolist() == list(range(start, start + size)) and batch.positions[0, 0] == offset
        else:
            assert batch.ids[0, -1] == (chunk + 1) * ct - 1
    lengths = np.concatenate([batch["lengths"] for batch in config["queue"]]) - 1
    queue = document_batches(np.stack([np.arange(lengths.size), lengths], axis=1), recipe.batch_seqs)
    for queued, expected in zip(queue, config["queue"], strict=True):
        assert (queued.documents[:, 1] + 1).tolist() == expected["lengths"]
        size = recipe.chunk_for(int(queued.documents[-1, 1]))
        assert size == expected["chunk"] and forwarded_tokens(queued, size, 10**9) > 0
        assert -(-int(queued.documents[-1, 1]) // size) == expected["chunk_steps"]


# The recipe written out: documents alone, torch's optimizers, phases on pieces that are run one by one.

TTT = TTTConfig(
    method="lora", lora_rank=2, lora_alpha=3.0, lora_targets=["o", "mlp"], lora_beta1=0.0, lora_weight_decay=0.5
)
RECIPE = TTTRecipe(lr=0.01, chunk_tokens=4, batch_seqs=2, seq_len=SEQ_LEN)
PHASES = PhasesConfig(count=2, documents=4, lr=0.05, chunk_tokens=32, batch_seqs=1, grad_clip=0.5)


def document_nats(model: GPT, document: torch.Tensor) -> list[float]:
    """Nats of the targets of one document (its tokens and the BOS that ends it), with factors of its own."""
    lora = BatchLoRA(model, 1, TTT, 7)
    optimizer = torch.optim.AdamW(lora.parameters(), 0.01, (0.0, 0.95), 1e-10, 0.5)
    handles, nats, targets = lora.attach(), [], document.numel() - 1
    for begin in range(0, targets, 4):
        end = min(begin + 4, targets)
        window = max(0, begin + 4 - SEQ_LEN)
        losses = model.token_losses(document[None, window:end], document[None, window + 1 : end + 1])[
            0, begin - window :
        ]
        nats += losses.tolist()
        if end < targets:
            optimizer.zero_grad()
            losses.mean().backward()
            optimizer.step()
    for handle in handles:
        handle.remove()
    return nats


def train_written_out(model: GPT, text: torch.Tensor) -> None:
    """Train on the text as a phase does, in sequences whose documents are run one by one."""
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
    chunks = -(-(text.numel() - 1) // 32)
    for chunk in range(chunks - 1):
        for begin in range(32 * chunk, 32 * (chunk + 1), SEQ_LEN):
            ids, targets = text[begin : begin + SEQ_LEN], text[begin + 1 : begin + SEQ_LEN + 1]
            cuts = [0, *[i for i in range(1, SEQ_LEN) if ids[i] == 1], SEQ_LEN]
            parts = [model.token_losses(ids[None, a:b], targets[None, a:b]).sum() for a, b in itertools.pairwise(cuts)]
            optimizer.zero_grad()
            (torch.stack(parts).sum() / SEQ_LEN).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.param_groups[0]["lr"] = 0.05 * 0.5 * (1 + math.cos(math.pi * chunk / (chunks - 1)))
            optimizer.step()


def phased_written_out(tokens: np.ndarray, order: str) -> np.ndarray:
    """Nats of every target, with one queue."""
    ids, model = torch.from_numpy(tokens.astype(np.int64)), small_model(layers=2)
    bounds = [*np.flatnonzero(tokens[:-1] == 1).tolist(), tokens.size - 1]
    ascending = sorted(itertools.pairwise(bounds), key=lambda pair: pair[1] - pair[0])
    groups = [ascending[i : i + 2] for i in range(0, len(ascending), 2)][::-1]
    nats, scored, pauses = np.full(tokens.size - 1, np.nan), [], [2, 4]
    for number, group in enumerate(groups):
        for start, end in group:
            nats[start:end] = document_nats(model, ids[start : end + 1])
        scored.append(group)
        if pauses and sum(map(len, scored)) >= pauses[0] and number + 1 < len(groups):
            queue = itertools.chain.from_iterable(scored if order == "queue" else scored[::-1])
            chosen = list(queue)[: pauses.pop(0)]
            train_written_out(model, torch.cat([ids[start : end + 1] for start, end in chosen]))
    return nats


@pytest.mark.parametrize("order", ["queue", "upstream"])
def test_equals_the_recipe_written_out(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ttt_lora, "LANES", 1)
    tokens, observed, model = small_tokens(90), Observed(), small_model(layers=2)
    separate_documents(model, SEQ_LEN)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    ttt = dataclasses.replace(TTT, lora_phases=dataclasses.replace(PHASES, order=order))
    score = LoraScoring(model, small_tally(tokens, None, observed), ttt, RECIPE, 7).score()
    expected = phased_written_out(tokens, order)
    assert f", {PHASES.count} phases of SGD" in score.how
    assert observed.per_target(90) == pytest.approx(expected, rel=1e-5)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_the_two_orders_differ() -> None:
    queue = document_batches(np.stack([np.arange(5), np.arange(1, 6)], axis=1), 2)
    lengths = {order: phase_documents(queue, 3, order)[:, 1].tolist() for order in ("queue", "upstream")}
    assert lengths == {"queue": [5, 3, 4], "upstream": [1, 2, 3]}


@pytest.mark.slow
@pytest.mark.parametrize(("lora_a", "clip"), [("drawn", 0.5), ("kept", 0.0)])
def test_the_number_of_ranks_changes_nothing(lora_a: str, clip: float) -> None:
    """A clip would hide gradients that are too large by the same factor. Both phases train."""
    tokens, models = small_tokens(800), [small_model(layers=2) for _ in range(3)]
    ttt = dataclasses.replace(TTT, lora_a=lora_a, lora_phases=dataclasses.replace(PHASES, grad_clip=clip))
    for model in models:
        separate_documents(model, SEQ_LEN)

    def work(ranks: Ranks) -> float:
        return LoraScoring(models[ranks.rank], small_tally(tokens, ranks), ttt, RECIPE, 7).score().val_loss

    queue = document_batches(list_documents(tokens), RECIPE.batch_seqs)
    assert len(lora_segments(queue, ttt, RECIPE, 3)) == 1 + PHASES.count
    alone = work(Ranks())
    assert on_ranks(3, work) == pytest.approx([alone] * 3, rel=1e-6)


def test_pauses_are_where_the_record_had_them() -> None:
    """Eight queues, 782 batches of 64 documents, of which the first, the 16 longest, takes longer than two others."""
    queue = document_batches(np.stack([np.arange(50_000), np.arange(1, 50_001)], axis=1), 64)
    seconds = [2500, *(1000 - i for i in range(len(queue) - 1))]
    for documents, pauses in ((2500, [1296, 2128, 2960]), (2000, [1104, 1808, 2448])):
        segments = plan_segments(queue, seconds, 8, pause_after(3, documents))
        counts = [sum(len(batch.documents) for lane in segment for batch in lane) for segment in segments]
        assert np.cumsum(counts).tolist() == [*pauses, 50_000]


def test_parameters_are_those_of_the_record() -> None:
    """Rank 80 on 11 layers with three of them run three times, and a vocabulary of 8192: 6,963,200 a document."""
    shape = ["model=11l", "model.model_dim=512", "model.num_heads=8", "model.num_kv_heads=4", "data.vocab_size=8192"]
    ttt = ["eval.ttt.lora_per=application", "eval.ttt.lora_targets=[q,k,v,o,mlp,head]", "eval.ttt.lora_rank=80"]
    cfg = compose(["scale=laptop", *shape, *ttt, "tech=[recurrence]", "tech.recurrence={first:3,last:5,passes:3}"])
    with torch.device("meta"):
        lora = BatchLoRA(shapeless_model(cfg), 1, cfg.eval.ttt, 0)
    assert sum(p.numel() for p in lora.parameters()) == 6_963_200


def test_the_name_says_how_many_phases_a_short_text_reaches() -> None:
    tokens, model = small_tokens(90), small_model(layers=2)
    separate_documents(model, SEQ_LEN)
    late = dataclasses.replace(TTT, lora_phases=dataclasses.replace(PHASES, documents=10_000))
    score = LoraScoring(model, small_tally(tokens, None), late, RECIPE, 7).score()
    assert f", 0 of {PHASES.count} phases of SGD" in score.how


def test_phases_that_a_text_is_too_short_for_fail_the_proofs(tiny: OwnDataset) -> None:
    chosen = [*tiny_overrides(tiny), "eval=ttt_phased", "eval.ttt.chunk_tokens=16", "model.within_documents=true"]
    chosen += ["data.loader=packed", "eval.ttt.batch_seqs=1", "eval.ttt.lora_phases.chunk_tokens=64"]
    cfg = compose([*chosen, "eval.ttt.lora_phases.documents=4"])
    dataset = open_dataset(cfg)
    assert unreached_phases(cfg, dataset) == []
    (said,) = unreached_phases(compose([*chosen, "eval.ttt.lora_phases.documents=2000"]), dataset)
    assert re.match(
        r"test-time training reaches 0 of \d phases?, by then all \d+ documents are scored: make eval", said
    )
    assert unreached_phases(compose(tiny_overrides(tiny)), dataset) == []
