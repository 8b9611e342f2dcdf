"""Test-time training of low-rank factors against the recipe written out for one document after the other."""

import itertools
import shutil

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from golf.bits import Score
from golf.errors import GolfError
from golf.settings.config import LaunchConfig, TTTRecipe
from golf.settings.scoring_config import TTTConfig
from golf.training.model.build import compile_for_training
from golf.training.model.gpt import GPT
from golf.training.ranks import Ranks
from golf.training.scoring.document_queue import document_batches, list_documents
from golf.training.scoring.lora import BatchLoRA, check_adapted
from golf.training.scoring.standard import score_standard
from golf.training.scoring.tally import Observe
from golf.training.scoring.ttt_lora import LoraScoring
from tests.training.scoring.small import (
    SEQ_LEN,
    Observed,
    assert_ranks_change_nothing,
    small_model,
    small_tally,
    small_tokens,
)

CHUNK, RANK, SEED = 4, 2, 7
RECIPE = TTTRecipe(lr=0.01, chunk_tokens=CHUNK, batch_seqs=3, seq_len=SEQ_LEN)
TTT = TTTConfig(method="lora", lora_rank=RANK)


def run(
    model: GPT,
    tokens: np.ndarray,
    recipe: TTTRecipe = RECIPE,
    *,
    ranks: Ranks | None = None,
    observe: Observe | None = None,
) -> Score:
    return LoraScoring(model, small_tally(tokens, ranks, observe), TTT, recipe, SEED).score()


class OneDocument(nn.Module):
    """The model with factors for a single document, its q and v matrices replaced by W + BA at every call."""

    def __init__(self, model: GPT):
        super().__init__()
        self.model = model
        start = BatchLoRA(model, 1, TTT, SEED)
        single = [p[0].detach().clone().requires_grad_(True) for p in start.parameters()]
        self.factors = list(zip(single[::2], single[1::2], strict=True))  # A, B of each layer, the head's last

    def losses(self, ids: Tensor, targets: Tensor) -> Tensor:
        deltas = [b @ a for a, b in self.factors]
        layers = {}
        for i in range(len(self.model.blocks)):
            for j, key in enumerate(("c_q", "c_v")):
                name = f"blocks.{i}.attn.{key}.weight"
                layers[name] = self.model.get_parameter(name) + deltas[2 * i + j]
        hidden = torch.func.functional_call(Hidden(self.model), {f"model.{k}": v for k, v in layers.items()}, (ids,))
        logits = 30 * torch.tanh((hidden @ (self.model.tok_emb.weight + deltas[-1]).T) / 30)
        return F.cross_entropy(logits[0, -targets.numel() :], targets, reduction="none")


class Hidden(nn.Module):
    def __init__(self, model: GPT):
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> Tensor:
        return self.model.hidden(ids)


def recipe_written_out(tokens: np.ndarray) -> np.ndarray:
    """Nats of every target: each document alone, torch's Adam, chunks of 4 in windows of 16 that end with them."""
    ids, bounds = torch.from_numpy(tokens.astype(np.int64)), [*np.flatnonzero(tokens[:-1] == 1), tokens.size - 1]
    nats: list[float] = []
    for start, end in itertools.pairwise(bounds):
        document = OneDocument(small_model())
        optimizer = torch.optim.Adam([f for pair in document.factors for f in pair], 0.01, (0.9, 0.95), 1e-10)
        for begin in range(start, end, CHUNK):
            stop = min(begin + CHUNK, end)
            window = max(start, begin + CHUNK - SEQ_LEN)
            losses = document.losses(ids[None, window:stop], ids[begin + 1 : stop + 1])
            nats += losses.tolist()
            if stop < end:
                optimizer.zero_grad()
                losses.mean().backward()
                optimizer.step()
    return np.array(nats)


@pytest.mark.parametrize(("targets", "batch_docs"), [(40, 1), (150, 4), (150, 64)])
def test_equals_the_recipe_written_out(targets: int, batch_docs: int) -> None:
    tokens, observed = small_tokens(targets), Observed()
    found = run(small_model(), tokens, RECIPE._replace(batch_seqs=batch_docs), observe=observed)
    expected = recipe_written_out(tokens)
    assert observed.per_target(targets) == pytest.approx(expected, rel=2e-3)
    assert found.val_loss == pytest.approx(expected.mean(), rel=1e-4)


@given(st.lists(st.integers(0, 3), min_size=2, max_size=60), st.integers(1, 4))
def test_documents_have_every_target_once(tokens: list[int], batch_docs: int) -> None:
    """Whether or not the text begins with a BOS, ends with one, or has several in a row."""
    documents = list_documents(np.array(tokens))
    assert documents[0, 0] == 0 and (documents[:, 1] > 0).all()
    assert (documents[1:, 0] == documents[:-1].sum(axis=1)).all() and documents[-1].sum() == len(tokens) - 1
    assert all(tokens[start] == 1 for start in documents[1:, 0]) and not any(
        tokens[i] == 1 for start, targets in documents for i in range(start + 1, start + targets)
    )
    groups = [batch.documents for batch in document_batches(documents, batch_docs)][::-1]
    assert sorted(map(tuple, np.concatenate(groups).tolist())) == sorted(map(tuple, documents.tolist()))
    lengths = [targets for group in groups for _, targets in group]
    assert lengths == sorted(lengths) and all(len(group) == batch_docs for group in groups[:-1])


def test_counts_are_those_of_the_standard_score() -> None:
    tokens = small_tokens(10 * SEQ_LEN)
    model = small_model()
    with torch.no_grad():
        standard = score_standard(model.token_losses, small_tally(tokens), seq_len=SEQ_LEN, batch_seqs=2)
    found = run(model, tokens)
    assert (found.tokens, found.bytes) == (standard.tokens, standard.bytes)


def test_ranks_change_nothing() -> None:
    tokens = small_tokens(200)
    assert_ranks_change_nothing(lambda model, ranks: run(model, tokens, ranks=ranks), 1e-6)


def test_model_is_as_before_and_has_no_hooks_left() -> None:
    model, tokens = small_model(), small_tokens(60)
    ids = torch.from_numpy(tokens[:SEQ_LEN].astype(np.int64))[None]
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with torch.no_grad():
        logits = model.logits(ids)
        run(model, tokens)
        assert torch.equal(model.logits(ids), logits)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())
    assert all(p.grad is None for p in model.parameters())


def test_it_learns_a_document_that_repeats() -> None:
    document = np.tile(small_tokens(10)[1:], 30)
    tokens = np.concatenate(([1], np.where(document == 1, 2, document))).astype(np.uint16)
    frozen = run(small_model(), tokens, RECIPE._replace(lr=1e-12))
    assert run(small_model(), tokens).val_loss < 0.9 * frozen.val_loss


def test_what_was_learned_in_a_document_is_forgotten_in_the_next() -> None:
    document = small_tokens(40)[1:]
    document[document == 1] = 2
    tokens = np.concatenate(([1], document, [1], document, [1]))
    observed = Observed()
    run(small_model(), tokens, RECIPE._replace(batch_seqs=1), observe=observed)
    nats = observed.per_target(82)
    assert nats[:41] == pytest.approx(nats[41:], rel=1e-4)


def test_a_model_without_separate_matrices_is_refused() -> None:
    model = small_model()
    model.blocks[1].set_submodule("attn.c_q", nn.Identity())
    with pytest.raises(GolfError, match="c_q and c_v of every block"):
        check_adapted(model, TTT)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile on a CPU needs g++")
def test_hooks_reach_a_model_whose_blocks_are_compiled() -> None:
    torch._dynamo.reset()
    model, tokens = small_model(), small_tokens(60)
    expected = run(model, tokens).val_loss
    compile_for_training(model, LaunchConfig(compile="blocks"))
    with torch.no_grad():
        model.logits(torch.zeros(3, SEQ_LEN, dtype=torch.int64))
    assert run(model, tokens).val_loss == pytest.approx(expected, rel=1e-5)


def test_short_documents_have_chunks_of_their_own() -> None:
    tokens, nats = small_tokens(200), {}
    recipe = RECIPE._replace(batch_seqs=1)
    for name, some in (("short", recipe._replace(chunk_tokens=2)), ("long", recipe), ("both", recipe)):
        observed = Observed()
        chunks = [[12, 2]] if name == "both" else []
        run(small_model(), tokens, some._replace(lora_chunks=chunks), observe=observed)
        nats[name] = observed.per_target(200)
    for start, targets in list_documents(tokens).tolist():
        expected = nats["short" if targets + 1 <= 12 else "long"][start : start + targets]
        assert nats["both"][start : start + targets] == pytest.approx(expected, rel=1e-6)
    assert not np.allclose(nats["short"], nats["long"])
