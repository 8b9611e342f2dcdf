"""Proof that the scores of a run are legal, on a short made-up text at a vocabulary of eight and random weights."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import torch

from golf.registry import CHANGES_SCORE
from golf.settings.config import Config, ModelConfig, eval_seq_len, techniques, ttt_recipe, world_size
from golf.settings.scoring_config import TTTConfig
from golf.training.data.dataset import Dataset
from golf.training.data.documents import BOS_ID
from golf.training.loop.random_model import RandomWeights
from golf.training.model.attention import cpu_kernels
from golf.training.model.gpt import GPT
from golf.training.ranks import Ranks
from golf.training.scoring.document_queue import document_batches, list_documents
from golf.training.scoring.legality import check_scoring, follows_queue, predictor_breaches
from golf.training.scoring.predictor import predictor_of
from golf.training.scoring.scorer import Scorer
from golf.training.scoring.ttt_lora import lora_segments
from golf.words import counted

# The text is small, because every probe is scored with each token of the vocabulary in its place.
VOCAB, WINDOW, SCORED_TOKENS = 8, 16, 80
ROW_TOKENS, LONGEST_ROW = 24, 4096
MOST_ASKED = 60_000  # probabilities of one token at one position that a predictor is asked for
LARGEST_ROUNDING = 1e-3  # of an output of size 1; Fourier transforms round all positions alike
PROBES = (29, 61)  # indices of the targets that the scoring check changes


@cpu_kernels()
def scoring_breaches(cfg: Config) -> list[str]:
    """Return a sentence for every rule that a score of `cfg` breaks. The model keeps its width, depth, techniques."""
    small = _small_scoring(cfg)
    if cfg.rules.name == "frontier":
        # The public frontier has hints from documents that are scored later.
        small.eval.tilt.order = "scored"
    weights = RandomWeights(small.model.model_dim).model(small).float().scored_weights()
    found = check_scoring(small, weights, _dataset(), PROBES)
    return [f"{mode} scoring: {breach}" for mode, breaches in found.items() for breach in breaches]


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
    weights = RandomWeights(shape.model_dim).model(small).float().scored_weights()
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
    if not cfg.model.within_documents:
        return []
    model, tokens = RandomWeights(cfg.model.model_dim).model(cfg), ROW_TOKENS + 3 * tokens_unchanged(cfg)
    ids = torch.arange(tokens)[None] % (cfg.model.vocab_size - 2) + 2
    begin, end = tokens // 3, 2 * tokens // 3
    ids[:, [0, begin, end]] = BOS_ID
    other = ids.clone()
    other[:, begin + 1 : end] = ids[:, begin + 1 : end].flip(1)
    with torch.no_grad():
        changed = (model.hidden(ids) != model.hidden(other)).any(-1)[0]
    if changed[:begin].any() or changed[end:].any():
        return ["model.within_documents: a changed token changes the output in another document"]
    return []


@cpu_kernels()
def future_leaks(cfg: Config) -> list[str]:
    """Return a sentence if a token changes the output at one before it, in a row of the run's length or `LONGEST_ROW`.

    The windows of `scoring_breaches` are shorter than the chunks in which some layers work. An output that differs at
    the second time has a sentence of its own, and so has one of another dtype than the network's.
    """
    tokens = min(LONGEST_ROW, max(cfg.data.train_seq_len, eval_seq_len(cfg))) if cfg.tech else 0
    model = RandomWeights(cfg.model.model_dim).model(cfg)
    # A technique that reads a row in its own way may need a pass for each token of it.
    if tokens <= WINDOW or model.read is not GPT.pass_once:
        return []
    ids = torch.arange(tokens)[None] % (cfg.model.vocab_size - 2) + 2
    with torch.no_grad():
        first, second = (model.hidden(ids[:, :ROW_TOKENS]) for _ in range(2))
        if not torch.equal(first, second):
            return ["the output for one text differs from pass to pass: scores depend on what was scored before"]
        if first.dtype != torch.float64:
            return [f"a technique turns the stream into {first.dtype}: return x's dtype, such as by .to(x.dtype)"]
        whole = model.float().hidden(ids)
        # Something that reads ahead by one token may do so late in the row alone.
        for changed in (2 * tokens // 3, tokens - 1):
            other = ids.clone()
            other[:, changed:] = ids.roll(1, dims=1)[:, changed:]
            change = (whole - model.hidden(other)).abs().amax(-1)[0, :changed]
            if len(leaks := (change > LARGEST_ROUNDING).nonzero()):
                return [f"in rows of {tokens} tokens, token {changed} changes the output at {int(leaks[0])}"]
    return []


@cpu_kernels()
def small_scores(cfg: Config) -> list[float]:
    """Return the standard score and those with sliding windows and test-time training that `cfg` takes, in nats."""
    small = _small_scoring(cfg)
    weights = RandomWeights(small.model.model_dim).model(small).float().scored_weights()
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
