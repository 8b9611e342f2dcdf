"""Every kind of score passes the check, and each sabotage is found by it."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
import torch.nn.functional as F
from torch import Tensor

from golf.lab.proofs.legality import check_scoring, find_breaches
from golf.settings.config import Config, DataConfig
from golf.settings.scoring_config import EvalConfig, PhasesConfig, TTTConfig
from golf.training.data.dataset import Dataset
from golf.training.model import attention
from golf.training.scoring import phases, sliding, ttt_lora, ttt_sgd
from golf.training.scoring.document_queue import list_documents
from golf.training.scoring.tally import Observe
from golf.training.scoring.ttt_sgd import SGDTrainer, SplitChunk
from tests.training.scoring.small import SEQ_LEN, VOCAB, small_model, small_tokens

TARGETS = 5 * SEQ_LEN
PROBES = (29, 55)  # the first inside the longest document of the text
SGD = TTTConfig(method="sgd", lr=0.1, chunk_tokens=32, epochs=1, freeze_blocks=0)
LORA = TTTConfig(method="lora", lr=0.05, chunk_tokens=4, lora_rank=2)
PHASES = PhasesConfig(count=1, documents=1, lr=0.1, chunk_tokens=16, batch_seqs=1)
PHASED = dataclasses.replace(
    LORA, batch_seqs=1, lora_a="kept", lora_windows="document", lora_queue="upstream", lora_phases=PHASES
)
PHASED_PROBE = (61,)  # in the document that is scored second, after the phase
MODES = {
    "standard": EvalConfig(),
    "sliding": EvalConfig(stride=4),
    "sliding, stride 7": EvalConfig(stride=7),
    "ttt_sgd": EvalConfig(stride=4, ttt=SGD),
    "ttt_sgd without overlap": EvalConfig(ttt=SGD),
    "ttt_lora": EvalConfig(ttt=LORA),
    "ttt_phased": EvalConfig(documents=True, ttt=PHASED),
}


def breaches(scoring: EvalConfig, probes: Sequence[int] = PROBES) -> dict[str, list[str]]:
    model = small_model(layers=2)
    evaluation = dataclasses.replace(scoring, dtype="fp32", val_batch_tokens=2 * SEQ_LEN, stride_batch_seqs=8)
    cfg = Config(
        model=model.cfg, eval=evaluation, data=DataConfig(train_seq_len=SEQ_LEN, micro_batches=1, vocab_size=VOCAB)
    )
    cfg.launch.device, cfg.launch.compile = "cpu", "off"
    dataset = Dataset([], [], small_tokens(TARGETS), np.ones(TARGETS, np.int16), "")
    return check_scoring(cfg, model.state_dict(), dataset, probes)


@pytest.mark.parametrize("mode", MODES)
def test_every_kind_of_score_passes(mode: str) -> None:
    found = breaches(MODES[mode], PHASED_PROBE if mode == "ttt_phased" else PROBES)
    kind = mode.split("_")[0].split(",")[0]
    assert kind in found and found == {key: [] for key in found}


def test_targets_that_are_scored_twice_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The public scripts' windows until the record of 1 April score their last targets again."""

    def every_start(targets: int, seq_len: int, stride: int) -> np.ndarray:
        start = np.arange(0, targets, stride)
        end = np.minimum(start + seq_len, targets)
        first = np.maximum(end - stride, start)
        first[:1] = 0
        return np.stack((start, first, end), axis=1)

    monkeypatch.setattr(sliding, "list_windows", every_start)
    (sentence,) = breaches(EvalConfig(stride=4))["sliding"]
    assert sentence == "4 targets are scored more than once, the first of them is 76"


def test_training_on_a_chunk_before_scoring_it_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    score_chunk = ttt_sgd.score_chunk

    def train_first(tally: object, trainer: SGDTrainer, losses_at: object, chunk: SplitChunk, *rest: object) -> None:
        trainer.train(chunk.sequences, lr=0.1)
        score_chunk(tally, trainer, losses_at, chunk, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(ttt_sgd, "score_chunk", train_first)
    found = breaches(MODES["ttt_sgd"])
    assert found["standard"] == found["sliding"] == []
    for t in PROBES:
        assert any(f"the probabilities of target {t} sum to 1." in s for s in found["ttt"])
        assert any(f"changing target {t} changes an earlier score" in s for s in found["ttt"])
    # As in the table of docs/legality.md.
    assert "changing target 29 changes an earlier score by 0.42 nats" in found["ttt"]


def test_windows_that_end_with_the_document_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The public low-rank recipe: how far back a window reaches depends on where the document ends."""
    chunk_batch = ttt_lora.chunk_batch

    def windows_end_with_documents(
        tokens: np.ndarray, documents: np.ndarray, chunk: int, chunk_tokens: int, seq_len: int, windows: str
    ) -> object:
        assert windows == "whole_chunks"
        return chunk_batch(tokens, documents, chunk, chunk_tokens, seq_len, "document")

    monkeypatch.setattr(ttt_lora, "chunk_batch", windows_end_with_documents)
    one_by_one = dataclasses.replace(LORA, batch_seqs=1, chunk_tokens=8, seq_len=8)
    found = breaches(EvalConfig(ttt=one_by_one))["ttt"]
    assert any("changes an earlier score" in sentence for sentence in found)


def test_a_phase_on_documents_that_are_not_scored_yet_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = list_documents(small_tokens(TARGETS))
    monkeypatch.setattr(phases, "phase_documents", lambda scored, most, order: everything)
    found = breaches(MODES["ttt_phased"], PHASED_PROBE)["ttt"]
    assert any("changes an earlier score" in s for s in found) and any("know the target" in s for s in found)


def test_attention_without_a_mask_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=True).transpose(1, 2)

    monkeypatch.setattr(attention, "attend_sdpa", attend)
    for found in breaches(MODES["ttt_sgd"]).values():
        assert any("changes an earlier score" in sentence for sentence in found)
        assert any("know the target" in sentence for sentence in found)


@pytest.mark.parametrize(
    ("nats", "sentence"),
    [
        (lambda tokens: np.full(tokens.size - 1, np.log(5)), None),
        (lambda tokens: np.full(tokens.size - 1, np.log(4)), "sum to 1.25"),
        (lambda tokens: np.full(tokens.size - 1, np.nan), "sum to nan"),
        (lambda tokens: np.log(5) + 0.01 * (tokens[1:].sum() % 2) * np.ones(tokens.size - 1), "by 0.01 nats"),
    ],
)
def test_faults_of_made_up_scores(nats: object, sentence: str | None) -> None:
    def score_text(tokens: np.ndarray, observe: Observe) -> None:
        observe(np.arange(tokens.size - 1), nats(tokens))  # type: ignore[operator]

    found = find_breaches(score_text, np.arange(10) % 5, 5, [3])
    assert not found if sentence is None else any(sentence in s for s in found)


def test_a_target_that_is_left_out_is_found() -> None:
    def score_text(tokens: np.ndarray, observe: Observe) -> None:
        observe(np.arange(tokens.size - 2), np.full(tokens.size - 2, np.log(5)))

    found = find_breaches(score_text, np.arange(10) % 5, 5, [3])
    assert found == ["1 targets are never scored, the first of them is 8"]


@pytest.mark.parametrize("stride", [0, 4])
def test_scores_by_document_pass_and_contexts_of_other_documents_are_found(
    stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_document = EvalConfig(documents=True, stride=stride)
    assert breaches(by_document) == {mode: [] for mode in (["standard", "sliding"] if stride else ["standard"])}
    # A model whose attention runs across documents.
    monkeypatch.setattr("golf.training.model.build.separate_documents", lambda model, longest: None)
    assert any("changes a score in a later document" in breach for breach in breaches(by_document)["standard"])
