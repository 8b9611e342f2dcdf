"""Test-time training with SGD against the recipe written out, and what may and may not come of it."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch

from golf.bits import Score
from golf.settings.config import Config, TTTRecipe
from golf.settings.scoring_config import TTTConfig
from golf.training.data.dataset import open_dataset
from golf.training.model.gpt import GPT
from golf.training.ranks import Ranks
from golf.training.scoring import scorer, ttt_sgd
from golf.training.scoring.forward import compiled_losses_at
from golf.training.scoring.sliding import score_sliding
from golf.training.scoring.tally import Observe, Watcher
from golf.training.scoring.ttt_sgd import SGDTrainer, list_chunks, score_ttt_sgd
from tests.training.scoring.small import (
    SEQ_LEN,
    Observed,
    assert_ranks_change_nothing,
    small_model,
    small_tally,
    small_tokens,
)

STRIDE, CHUNK = 4, 32
RECIPE = TTTRecipe(lr=0.05, chunk_tokens=CHUNK, batch_seqs=2, seq_len=SEQ_LEN)
TTT = TTTConfig(method="sgd", epochs=2, freeze_blocks=1, grad_clip=0.5)


def run(
    model: GPT,
    tokens: np.ndarray,
    recipe: TTTRecipe = RECIPE,
    stride: int = STRIDE,
    *,
    ttt: TTTConfig | None = None,
    ranks: Ranks | None = None,
    observe: Observe | None = None,
    watcher: Watcher | None = None,
) -> Score:
    trainer = SGDTrainer(model, tokens, ttt or TTT, recipe, ranks or Ranks())
    losses_at, tally = compiled_losses_at(model, "off"), small_tally(tokens, ranks, observe)
    return score_ttt_sgd(trainer, losses_at, tally, stride=stride, batch_seqs=3, watcher=watcher)


def plain_losses(model: GPT, tokens: np.ndarray, start: int, end: int) -> torch.Tensor:
    ids = torch.from_numpy(tokens[start : end + 1].astype(np.int64))[None]
    return torch.nn.functional.cross_entropy(model.logits(ids[:, :-1])[0], ids[0, 1:], reduction="none")


def recipe_written_out(model: GPT, tokens: np.ndarray, targets: int) -> np.ndarray:
    """Nats of every target: windows one at a time, torch's SGD, gradients of each update's mean loss."""
    nats = np.full(targets, np.nan)
    params = [p for name, p in model.named_parameters() if not name.startswith("blocks.0.")]
    optimizer = torch.optim.SGD(params, lr=RECIPE.lr, momentum=TTT.momentum)
    chunks = math.ceil(targets / CHUNK)
    for chunk in range(chunks):
        for start in range(0, targets, STRIDE):
            first = 0 if start == 0 else start + SEQ_LEN - STRIDE
            end = min(start + SEQ_LEN, targets)
            if first < end and first // CHUNK == chunk:
                with torch.no_grad():
                    nats[first:end] = plain_losses(model, tokens, start, end)[first - start :].numpy()
        if chunk == chunks - 1:
            return nats
        starts = [chunk * CHUNK + i * SEQ_LEN for i in range(CHUNK // SEQ_LEN)]
        optimizer.param_groups[0]["lr"] = RECIPE.lr * 0.5 * (1 + math.cos(math.pi * chunk / (chunks - 1)))
        for _ in range(TTT.epochs):
            for i in range(0, len(starts), RECIPE.batch_seqs):
                optimizer.zero_grad()
                parts = [plain_losses(model, tokens, s, s + SEQ_LEN) for s in starts[i : i + RECIPE.batch_seqs]]
                torch.cat(parts).mean().backward()
                torch.nn.utils.clip_grad_norm_(params, TTT.grad_clip)
                optimizer.step()
    return nats


@pytest.mark.parametrize("targets", [CHUNK - 3, 3 * CHUNK, 3 * CHUNK + 5])
def test_equals_the_recipe_written_out(targets: int) -> None:
    tokens, observed = small_tokens(targets), Observed()
    found = run(small_model(), tokens, observe=observed)
    expected = recipe_written_out(small_model(), tokens, targets)
    assert observed.per_target(targets) == pytest.approx(expected, rel=1e-3)
    assert found.tokens == targets and found.val_loss == pytest.approx(expected.mean(), rel=1e-5)


def test_weights_are_as_before_even_if_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    first, second = (run(model, small_tokens(80)) for _ in range(2))
    assert first.val_loss == second.val_loss
    calls: list[int] = []

    def fail_at_the_third_chunk(*arguments: object) -> None:
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError("enough")

    monkeypatch.setattr(ttt_sgd, "score_chunk", fail_at_the_third_chunk)
    with pytest.raises(RuntimeError, match="enough"):
        run(model, small_tokens(80))
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_training_happens_and_frozen_blocks_do_not_move(monkeypatch: pytest.MonkeyPatch) -> None:
    model, seen = small_model(), {}
    before = {k: v.clone() for k, v in model.state_dict().items()}
    restored = ttt_sgd.SGDTrainer.train

    def note(self: ttt_sgd.SGDTrainer, sequences: np.ndarray, lr: float) -> None:
        restored(self, sequences, lr)
        seen.update({k: v.clone() for k, v in self.model.state_dict().items()})

    monkeypatch.setattr(ttt_sgd.SGDTrainer, "train", note)
    run(model, small_tokens(80))
    moved = {name for name, value in seen.items() if not torch.equal(value, before[name])}
    assert moved == {name for name in before if not name.startswith("blocks.0.")}


@pytest.mark.parametrize("clip", [0.5, 0.0])
def test_ranks_change_nothing(clip: float) -> None:
    """Three ranks share updates of two sequences: one of them never has any, and nobody waits for it.

    A clip would hide gradients that are too large by the same factor.
    """
    tokens, ttt = small_tokens(3 * CHUNK + 5), dataclasses.replace(TTT, grad_clip=clip)
    assert_ranks_change_nothing(lambda model, ranks: run(model, tokens, ttt=ttt, ranks=ranks), 1e-5)


def test_it_learns_a_text_that_repeats() -> None:
    tokens = np.tile(small_tokens(24), 40)[: 16 * CHUNK + 1]
    model, recipe = small_model(), RECIPE._replace(lr=0.1)
    losses_at = compiled_losses_at(model, "off")
    untrained = score_sliding(losses_at, small_tally(tokens), seq_len=SEQ_LEN, stride=STRIDE, batch_seqs=8)
    found = run(model, tokens, recipe=recipe)
    assert found.val_loss < 0.9 * untrained.val_loss
    assert (found.tokens, found.bytes) == (untrained.tokens, untrained.bytes)


def test_stride_0_scores_without_overlap_and_trains() -> None:
    tokens, observed = small_tokens(3 * CHUNK), Observed()
    model = small_model()
    found = run(model, tokens, observe=observed, stride=0)
    nats = observed.per_target(3 * CHUNK)
    with torch.no_grad():
        untrained = torch.cat([plain_losses(model, tokens, s, s + SEQ_LEN) for s in range(0, 3 * CHUNK, SEQ_LEN)])
    assert nats[:CHUNK] == pytest.approx(untrained[:CHUNK].numpy(), rel=1e-4)
    assert np.abs(nats[CHUNK:] - untrained[CHUNK:].numpy()).max() > 0.01
    assert "stride 16" in found.how


def test_chunks_of_the_public_split() -> None:
    chunks = list_chunks(62_021_632, seq_len=2048, stride=64, chunk_tokens=32_768)
    assert len(chunks) == 1893 and not chunks[-1].sequences.size
    assert {len(c.sequences) for c in chunks[:-1]} == {16}
    assert all(c.windows[0, 1] == i * 32_768 for i, c in enumerate(chunks))


def test_training_before_scoring_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows that leave out the end of a chunk would leave its targets unscored when they are trained on."""
    complete = ttt_sgd.list_windows
    monkeypatch.setattr(ttt_sgd, "list_windows", lambda *a: np.delete(complete(*a), 5, axis=0))
    with pytest.raises(AssertionError):
        list_chunks(200, seq_len=SEQ_LEN, stride=STRIDE, chunk_tokens=CHUNK)


def test_watcher_is_told_every_chunk() -> None:
    class Told:
        def __init__(self) -> None:
            self.told: list[tuple[float, ...]] = []

        def ttt_start(self, parts: int, windows: int) -> None:
            self.told.append((parts, windows))

        def ttt_part(self, done: int, parts: int, val_bpb: float, seconds: float) -> None:
            self.told.append((done, parts, val_bpb))

    watcher = Told()
    found = run(small_model(), small_tokens(2 * CHUNK + 1), watcher=watcher)
    start, *parts = watcher.told
    assert start[0] == 3 and [p[:2] for p in parts] == [(1, 3), (2, 3), (3, 3)]
    assert parts[-1][2] == pytest.approx(found.val_bpb)


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_what_is_compiled_for_an_update_is_compiled_before_the_clock(world_size: int) -> None:
    """Shapes and strides, which a compiled function is specialised for, on every rank; the weights stay."""
    tokens, recipe = small_tokens(5 * CHUNK + 3), RECIPE._replace(chunk_tokens=5 * SEQ_LEN, batch_seqs=3)
    for rank in range(world_size):
        ranks, seen = Ranks(rank, world_size), set[object]()
        trainer = SGDTrainer(small_model(), tokens, TTT, recipe, ranks)
        plain, before = trainer.losses, [p.detach().clone() for p in trainer.params]

        def losses(ids: torch.Tensor, targets: torch.Tensor, seen: set = seen, plain: Any = plain) -> torch.Tensor:
            seen.add((ids.shape, ids.stride(), targets.stride(), ids.dtype, torch.is_grad_enabled()))
            return plain(ids, targets)

        trainer.losses = losses
        trainer.warm_up()
        assert all(map(torch.equal, trainer.params, before)) and not any(m.any() for m in trainer.momentum)
        warmed = set(seen)
        seen.clear()
        # One rank's part of an update, without the others' sums.
        trainer.ranks = type("Apart", (Ranks,), {"sum_tensors": lambda *_: None})(rank, world_size)
        for chunk in list_chunks(tokens.size - 1, seq_len=SEQ_LEN, stride=STRIDE, chunk_tokens=5 * SEQ_LEN):
            trainer.train(chunk.sequences, 0.1)
        assert seen == warmed and 1 <= len(seen) <= 2


def test_the_clock_of_a_score_begins_behind_the_compiler(tiny_cfg: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    cfg = dataclasses.replace(tiny_cfg, launch=dataclasses.replace(tiny_cfg.launch, compile="full"))
    cfg.eval.ttt.method, cfg.eval.ttt.chunk_tokens = "sgd", 4 * cfg.data.train_seq_len
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)

    def noting(event: str, function: Any) -> Any:
        def noted(*args: Any) -> Any:
            events.append(event)
            return function(*args)

        return noted

    monkeypatch.setattr(SGDTrainer, "_gradients", noting("update", SGDTrainer._gradients))
    monkeypatch.setattr(scorer, "Tally", noting("clock", scorer.Tally))
    scored = scorer.Scorer(cfg, open_dataset(cfg), Ranks())
    scored.test_time_trained(scored.model.state_dict())
    assert events[0] == "update" and events.count("clock") == 1
    assert events.index("clock") < len(events) - 2
