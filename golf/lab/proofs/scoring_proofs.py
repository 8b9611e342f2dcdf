"""Proof that the scores of a run are legal, on a short made-up text at a vocabulary of eight and random weights."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import torch

from golf.artifact.quant.formats import Tensors
from golf.lab.proofs.causality import (
    cut_to,
    document_leaks_of,
    row_leaks,
    text_of_all_tokens,
    trained_model,
)
from golf.lab.proofs.legality import check_scoring, follows_queue, predictor_breaches
from golf.lab.proofs.random_model import RandomWeights
from golf.registry import CHANGES_SCORE
from golf.settings.config import Config, ModelConfig, eval_seq_len, techniques, ttt_recipe, world_size
from golf.settings.scoring_config import TTTConfig
from golf.training.data.dataset import Dataset
from golf.training.data.documents import BOS_ID
from golf.training.model.attention import cpu_kernels
from golf.training.ranks import Ranks
from golf.training.scoring.document_queue import document_batches, list_documents
from golf.training.scoring.predictor import predictor_of
from golf.training.scoring.scorer import Scorer
from golf.training.scoring.ttt_lora import lora_segments
from golf.words import counted

# The text is small, because every probe is scored with each token of the vocabulary in its place.
VOCAB, WINDOW, SCORED_TOKENS = 8, 16, 80
ROW_TOKENS, LONGEST_ROW = 24, 4096
MOST_ASKED = 60_000  # probabilities of one token at one position that a predictor is asked for
PROBES = (29, 61)  # indices of the targets that the scoring check changes


@cpu_kernels()
def scoring_breaches(cfg: Config, trained: Tensors | None = None) -> list[str]:
    """Return a sentence for every rule that a score of `cfg` breaks. The model keeps its width, depth, techniques.

    Its weights are random, or corners of those that `trained` holds.
    """
    small = _small_scoring(cfg)
    if cfg.rules.name == "frontier":
        # The public frontier has hints from documents that are scored later.
        small.eval.tilt.order = "scored"
    weights = RandomWeights(small.model.model_dim).model(small).scored_weights()
    found = check_scoring(small, cut_to(trained, weights) if trained else weights, _dataset(), PROBES)
    return [f"{mode} scoring: {breach}" for mode, breaches in found.items() for breach in breaches]


@torch.random.fork_rng(devices=[])
@cpu_kernels()
def trained_breaches(cfg: Config, weights: Tensors, dataset: Dataset, share: int = 0, shares: int = 1) -> list[str]:
    """Return a sentence if a score of the trained `weights` breaks a rule, on text of `dataset`.

    A gain may have grown since the proofs at random weights. Of the two parts of this proof the one is done that falls
    to `share` of `shares`.
    """
    parts = [lambda: _trained_rows(cfg, weights, dataset), lambda: scoring_breaches(cfg, weights)]
    found = [breach for part in parts[share::shares] for breach in part()]
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return [f"with the trained weights, {found[0]}{more}"] if found else []


def _trained_rows(cfg: Config, weights: Tensors, dataset: Dataset) -> list[str]:
    """Return what `row_leaks` and `document_leaks_of` say of the first row of the validation text."""
    model, tokens = (
        trained_model(cfg, weights),
        torch.from_numpy(dataset.validation[: _row_tokens(cfg) + 1].astype(np.int64)),
    )
    return [*row_leaks(model, tokens, cfg.seed), *(document_leaks_of(model, tokens) if _within_documents(cfg) else [])]


def _within_documents(cfg: Config) -> bool:
    """Tell whether scores, and so the model that they read, stay within documents."""
    return cfg.model.within_documents or cfg.eval.documents


def _row_tokens(cfg: Config) -> int:
    return min(LONGEST_ROW, max(cfg.data.train_seq_len, eval_seq_len(cfg)))


def unreached_phases(cfg: Config, dataset: Dataset) -> list[str]:
    """Return a sentence if all documents are scored before the last phase of test-time training."""
    ttt, recipe, documents = cfg.eval.ttt, ttt_recipe(cfg), list_documents(dataset.validation)
    queue = document_batches(documents, recipe.batch_seqs)
    reached = len(lora_segments(queue, ttt, recipe, world_size(cfg))) - 1
    if reached >= ttt.lora_phases.count:
        return []
    said = f"test-time training reaches {reached} of {counted(ttt.lora_phases.count, 'phase')}"
    why = f"by then all {counted(len(documents), 'document')} are scored"
    return [f"{said}, {why}: make eval.ttt.lora_phases.documents or eval.ttt.batch_seqs smaller"]


@cpu_kernels()
def improper_predictor(cfg: Config) -> list[str]:
    """Return a sentence for every rule that a technique's predictor breaks at any position asked of a text.

    It is asked alone for the whole vocabulary, and then mixed into the scores of a model of one layer.
    """
    random, vocab = np.random.default_rng(0), cfg.model.vocab_size
    # Few kinds of tokens in a text that comes again and again, so that short and long contexts do.
    part = random.choice(random.choice(vocab, 6), 1 + max(20, min(100, MOST_ASKED // vocab // 2)))
    text = np.resize(part, LONGEST_ROW).astype(np.uint16)
    breaches = predictor_breaches(predictor_of(cfg), vocab, text, 2 * part.size)
    shape = ModelConfig(vocab_size=VOCAB, num_layers=1, model_dim=16, num_heads=2, num_kv_heads=1, compute_dtype="fp32")
    tech = {name: technique for name, technique in cfg.tech.items() if technique.effect == CHANGES_SCORE}
    small = dataclasses.replace(_small_scoring(cfg), model=shape, tech=tech)
    # Test-time training is proved with the run's own model.
    small.eval = dataclasses.replace(small.eval, stride=WINDOW // 4, ttt=TTTConfig())
    weights = RandomWeights(shape.model_dim).model(small).scored_weights()
    few = dataclasses.replace(_dataset(), validation=_dataset().validation[: 2 * WINDOW + 1])
    for found in check_scoring(small, weights, few, range(2 * WINDOW)).values():
        breaches += found
    return [f"{name}: {breach}" for name in tech for breach in breaches]


def tokens_unchanged(cfg: Config) -> int:
    """Return the most tokens of a document or row in which a technique changes nothing: `Technique.acts_after`."""
    return max((technique.acts_after() for technique in techniques(cfg)), default=0)


@cpu_kernels()
def document_leaks(cfg: Config) -> list[str]:
    """Return a sentence if a changed token changes what the model of `cfg` makes of another document of its row."""
    if not _within_documents(cfg):
        return []
    within = dataclasses.replace(cfg, model=dataclasses.replace(cfg.model, within_documents=True))
    tokens = text_of_all_tokens(cfg.model.vocab_size, ROW_TOKENS + 3 * tokens_unchanged(cfg))
    return document_leaks_of(RandomWeights(cfg.model.model_dim).model(within), tokens)


@cpu_kernels()
def future_leaks(cfg: Config) -> list[str]:
    """Return a sentence if a token changes the output at one before it, in a row of the run's length or `LONGEST_ROW`.

    The windows of `scoring_breaches` are shorter than the chunks in which some layers work. An output that differs at
    the second time has a sentence of its own, and so has one of another dtype than the network's.
    """
    model, tokens = (
        RandomWeights(cfg.model.model_dim).model(cfg),
        text_of_all_tokens(cfg.model.vocab_size, _row_tokens(cfg)),
    )
    with torch.no_grad():
        first, second = (model.hidden(tokens[None, :ROW_TOKENS]) for _ in range(2))
    if not torch.equal(first, second):
        return ["the output for one text differs from pass to pass: scores depend on what was scored before"]
    if first.dtype != torch.float64:
        return [f"a technique turns the stream into {first.dtype}: return x's dtype, such as by .to(x.dtype)"]
    return row_leaks(model, tokens)


@cpu_kernels()
def small_scores(cfg: Config) -> list[float]:
    """Return the standard score and those with sliding windows and test-time training that `cfg` takes, in nats."""
    small = _small_scoring(cfg)
    weights = RandomWeights(small.model.model_dim).model(small).scored_weights()
    scorer = Scorer(small, _dataset(), Ranks())
    scores = [scorer(weights)]
    if cfg.eval.stride:
        scores.append(scorer.sliding(weights))
    if cfg.eval.ttt.method != "off":
        scores.append(scorer.test_time_trained(weights))
    return [score.val_loss for score in scores]


def _dataset() -> Dataset:
    tokens = np.random.default_rng(0).integers(2, VOCAB, SCORED_TOKENS + 1)
    # Each probe lies in a document that has another one before it.
    tokens[[0, 21, 50]] = BOS_ID
    # What a predictor says of a long match shows in a document that repeats itself.
    tokens[66:] = tokens[51:66]
    return Dataset([], [], tokens.astype(np.uint16), np.ones(SCORED_TOKENS, np.int16), "")


def _small_scoring(cfg: Config) -> Config:
    """Return `cfg` with short windows and chunks, on the CPU; strides keep their share of the window."""
    stride = max(1, cfg.eval.stride * WINDOW // eval_seq_len(cfg)) if cfg.eval.stride else 0
    # A large step shows a leak better.
    ttt = dataclasses.replace(cfg.eval.ttt, batch_seqs=2, seq_len=None, lr=0.1)
    ttt.chunk_tokens = WINDOW // 4 if ttt.method == "lora" else math.lcm(WINDOW, stride or 1)
    # Two of the three documents are short.
    ttt.lora_chunks = [[30, WINDOW // 8]] if ttt.lora_chunks else []
    if follows_queue(cfg):
        # One document after the other, so that each inherits from the one before, and phases come in between.
        ttt.batch_seqs, ttt.lora_queue = 1, "upstream"
        ttt.lora_phases = dataclasses.replace(
            ttt.lora_phases, count=min(2, ttt.lora_phases.count), documents=2, chunk_tokens=WINDOW, batch_seqs=1, lr=0.1
        )
    return dataclasses.replace(
        cfg,
        model=dataclasses.replace(cfg.model, vocab_size=VOCAB, compute_dtype="fp32", attention="sdpa"),
        data=dataclasses.replace(cfg.data, vocab_size=VOCAB, train_seq_len=WINDOW, micro_batches=1),
        eval=dataclasses.replace(
            cfg.eval,
            seq_len=None,
            val_batch_tokens=2 * WINDOW,
            stride=stride,
            stride_batch_seqs=8,
            ttt=ttt,
            # Short contexts without thresholds, so that a text of random tokens has hints.
            tilt=dataclasses.replace(cfg.eval.tilt, contexts=[1], least_shares=[0.0], least_counts=[1]),
            dtype="fp32",
        ),
        launch=dataclasses.replace(cfg.launch, device="cpu", compile="off", nproc=1, nodes=1),
    )
