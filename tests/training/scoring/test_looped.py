"""Scores of models whose layers run several times, also in two lanes or with passes that were added one by one."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from golf.bits import bits_per_byte
from golf.registry import technique_types
from golf.settings.config import Config
from golf.training.data.byte_tables import byte_tables, load_tokenizer
from golf.training.data.shards import find_shards, open_shard
from golf.training.model.build import build_model
from golf.training.model.gpt import GPT
from golf.training.ranks import Ranks
from golf.training.scoring.forward import compiled_losses_at
from golf.training.scoring.sliding import score_sliding
from golf.training.scoring.standard import score_standard
from golf.training.scoring.tally import Tally
from tests.support import PARITY, compose, parity
from tests.training.loop.test_trajectory import configuration
from tests.training.scoring.small import SEQ_LEN, VOCAB, Observed, on_ranks, small_tally, small_tokens
from tests.training.scoring.test_sliding import one_by_one
from tests.training.scoring.test_ttt_sgd import recipe_written_out, run

LOOP: dict[str, Any] = {"first": 1, "last": 2, "passes": 3, "enable_at": 0.35}
STACKS: dict[str, dict[str, dict[str, Any]]] = {
    "loop": {"recurrence": LOOP},
    "progressive": {"recurrence": {**LOOP, "full_at": 0.65}},
    "lanes": {"recurrence": LOOP, "parallel_lanes": {"form": "crossed", "first": 3}},
    "side by side": {"recurrence": LOOP, "parallel_lanes": {"form": "side_by_side", "first": 2}, "skip_gates": {}},
}
ALL_PASSES = [0, 1, 2, 1, 2, 1, 2, 3, 4]


def looped_model(stack: str) -> GPT:
    """A small model with the techniques of `stack`, and weights at which every part of it matters."""
    cfg = compose(["scale=laptop", "model=4l", "model.compute_dtype=fp32", "launch.device=cpu", "tech=[]"])
    shape: dict[str, Any] = {"vocab_size": VOCAB, "num_layers": 5, "model_dim": 16, "num_heads": 2, "num_kv_heads": 1}
    cfg.model = dataclasses.replace(cfg.model, **shape)
    cfg.tech = {name: technique_types()[name](**settings) for name, settings in STACKS[stack].items()}
    model = build_model(cfg).eval()
    torch.manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.2 * torch.randn_like(p))
    return model


@pytest.mark.parametrize("stack", STACKS)
def test_sliding_windows_run_all_passes(stack: str) -> None:
    model, tokens, observed = looped_model(stack), small_tokens(50), Observed()
    assert [visit.block for visit in model.route_when(model.active_in_scoring)] == ALL_PASSES
    score_sliding(
        compiled_losses_at(model, "off"),
        small_tally(tokens, observe=observed),
        seq_len=SEQ_LEN,
        stride=4,
        batch_seqs=3,
    )
    assert observed.per_target(50) == pytest.approx(one_by_one(model, tokens, 4), rel=1e-4)
    # The loop is in the score: without it the same windows have other losses.
    ids = torch.from_numpy(tokens[:SEQ_LEN].astype(np.int64))[None]
    with torch.no_grad():
        assert not torch.allclose(model.logits(ids, ()), model.logits(ids), atol=1e-2)
        if stack == "progressive":
            assert not torch.allclose(model.logits(ids, ("recurrence",)), model.logits(ids), atol=1e-3)


@pytest.mark.parametrize("stack", STACKS)
def test_sgd_equals_the_recipe_written_out(stack: str) -> None:
    targets = 3 * 32 + 5
    tokens, observed = small_tokens(targets), Observed()
    run(looped_model(stack), tokens, observe=observed)
    assert observed.per_target(targets) == pytest.approx(
        recipe_written_out(looped_model(stack), tokens, targets), rel=2e-3
    )


def test_two_ranks_train_a_looped_model_as_one_does() -> None:
    tokens = small_tokens(101)
    alone = run(looped_model("lanes"), tokens)
    # Made before the ranks, which are threads and share the random numbers of a model's start.
    models = [looped_model("lanes") for _ in range(2)]
    for score in on_ranks(2, lambda ranks: run(models[ranks.rank], tokens, ranks=ranks)):
        assert score.val_loss == pytest.approx(alone.val_loss, rel=1e-5)


def test_public_score_of_the_averaged_weights_of_9_april() -> None:
    arrays, case = parity("trajectory09")
    cfg: Config = configuration()
    model = build_model(cfg).eval()
    model.load_state_dict({k[4:]: torch.from_numpy(v) for k, v in arrays.items() if k.startswith("ema/")})
    folder = PARITY / "tiny_dataset"
    (shard,) = find_shards(folder, "fineweb_val_*.bin", "validation")
    tokens = open_shard(shard)
    tokens = tokens[: (tokens.size - 1) // 64 * 64 + 1]
    tables = byte_tables(load_tokenizer(folder / "tiny_400_bpe.model", 400), 400)
    tally = Tally(tokens, tables.of(tokens[:-1], tokens[1:]), Ranks())
    score = score_standard(lambda x, y: model.token_losses(x, y), tally, seq_len=64, batch_seqs=4)
    loss, bpb = case["val_ema"]
    assert score.val_loss == pytest.approx(loss, abs=2e-5) and score.val_bpb == pytest.approx(bpb, abs=3e-5)
    assert bits_per_byte(score.val_loss, score.tokens, score.bytes) == score.val_bpb
