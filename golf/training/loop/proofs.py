"""Proofs before the clock that every selected technique acts and that the scores are legal.

An experiment must not silently test something else. A proof that fails makes a run void, or stops it (see the `rules`
group). Passing proves little: a technique changed something. Whether it changed the right thing is for its own tests.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import torch

from golf.run.progress import Progress
from golf.settings.config import Config, eval_seq_len, techniques
from golf.training.data.byte_tables import ByteTables
from golf.training.data.dataset import Dataset
from golf.training.model.build import build_model, shapeless_model
from golf.training.model.gpt import GPT
from golf.training.scoring.legality import check_scoring
from golf.training.techniques.base import CHANGES_GRADIENT, CHANGES_INIT, Technique

SEQUENCES, TOKENS = 2, 24
VOCAB, BOS_ID, WINDOW, SCORED_TOKENS = 8, 1, 16, 80
PROBES = (29, 61)  # indices of the targets that the scoring check changes
WHILE_SWITCHED = Progress(step=1, fraction=1.0, lr_multiplier=0.0)


def inert_techniques(cfg: Config) -> list[str]:
    """Return a sentence for every selected technique without its declared effect on `cfg`'s model.

    Each is taken out in turn, and loss and gradients are compared at equal random weights. Float64 on the CPU shows an
    effect below a float32 rounding step, too.
    """
    failures = []
    selected = techniques(cfg)
    whole = _loss_and_gradients(cfg) if any(t.effect == CHANGES_GRADIENT for t in selected) else {}
    for technique in selected:
        if technique.effect == CHANGES_INIT and _same_start(cfg, technique):
            failures.append(f"{technique.name} changed no weight at the start")
        if technique.effect == CHANGES_GRADIENT and _loss_and_gradients(without(cfg, technique.name)) == whole:
            failures.append(f"{technique.name} changed neither the loss nor a gradient")
        if technique.separates_documents() and _leaks_across_documents(cfg, technique):
            failures.append(f"{technique.name} mixes tokens across document starts although it says it does not")
    return failures


def without(cfg: Config, name: str) -> Config:
    """Return `cfg` without the technique `name` and without those that require it."""
    kept = {k: t for k, t in cfg.tech.items() if k != name and name not in t.requires}
    return dataclasses.replace(cfg, tech=kept)


def _random_model(cfg: Config) -> GPT:
    """Return the model of `cfg` in float64 with random weights, which are equal for equal names."""
    # Built without storage first: initialising large matrices is slow, and the weights are overwritten anyway.
    model = shapeless_model(cfg)
    model.to_empty(device="cpu").double()
    for name, tensor in model.state_dict().items():
        seed = sum(name.encode()) + 1009 * tensor.numel()
        noise = torch.randn(tensor.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        tensor.copy_(noise * (tensor.size(-1) if tensor.ndim > 1 else 4.0) ** -0.5 + (1.0 if tensor.ndim < 2 else 0.0))
    for technique in techniques(cfg):
        technique.before_step(model, WHILE_SWITCHED)
    return model


def _loss_and_gradients(cfg: Config) -> dict[str, Any]:
    """Return the loss with all switches on, and gradient sums of the parameters that every model has.

    A technique's own parameters count by their effect on these: parameters that nothing depends on change none.
    """
    model = _random_model(cfg)
    ids = torch.randint(cfg.model.vocab_size, (SEQUENCES, TOKENS + 1), generator=torch.Generator().manual_seed(0))
    active = tuple(t.name for t in techniques(cfg) if t.is_switch)
    loss = model(ids[:, :-1], ids[:, 1:], active)
    loss.backward()
    shared = {"tok_emb.weight", *(f"blocks.{i}.attn.proj.weight" for i in range(cfg.model.num_layers))}
    gradients = {k: p.grad for k, p in model.named_parameters() if k in shared}
    return {"loss": loss.item(), **{k: None if g is None else g.abs().sum().item() for k, g in gradients.items()}}


def scoring_breaches(cfg: Config) -> list[str]:
    """Return a sentence for every rule that a score of `cfg` breaks on a short made-up text at a vocabulary of eight.

    The model keeps its width, depth and techniques; weights are random.
    """
    small, tokens = _small_scoring(cfg), np.random.default_rng(0).integers(2, VOCAB, SCORED_TOKENS + 1)
    tokens[[0, 21, 50]] = BOS_ID
    tables = ByteTables(np.ones(VOCAB, np.int16), np.zeros(VOCAB, bool), np.arange(VOCAB) < 2)
    dataset = Dataset([], [], tokens.astype(np.uint16), tables, "")
    found = check_scoring(small, _random_model(small).float().state_dict(), dataset, PROBES)
    return [f"{mode} scoring: {breach}" for mode, breaches in found.items() for breach in breaches]


def _small_scoring(cfg: Config) -> Config:
    """Return `cfg` with short windows and chunks, on the CPU; strides keep their share of the window."""
    stride = max(1, cfg.eval.stride * WINDOW // eval_seq_len(cfg)) if cfg.eval.stride else 0
    ttt = dataclasses.replace(cfg.eval.ttt, batch_seqs=2, seq_len=None, lr=0.1)  # a large step shows a leak better
    ttt.chunk_tokens = WINDOW // 4 if ttt.method == "lora" else math.lcm(WINDOW, stride or 1)
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
            dtype="fp32",
        ),
        launch=dataclasses.replace(cfg.launch, device="cpu", compile="off", nproc=1, nodes=1),
    )


def _same_start(cfg: Config, technique: Technique) -> bool:
    model, plain = build_model(cfg).state_dict(), build_model(without(cfg, technique.name)).state_dict()
    return all(torch.equal(tensor, plain[name]) for name, tensor in model.items() if name in plain)


def _leaks_across_documents(cfg: Config, technique: Any) -> bool:
    """Tell whether the stream from a document's first token on depends on the document before it."""
    model = _random_model(dataclasses.replace(cfg, tech={technique.name: technique}))
    ids = torch.arange(TOKENS)[None] % (cfg.model.vocab_size - 2) + 2
    start = TOKENS // 2
    ids[:, start] = technique.bos_id
    other = ids.clone()
    other[:, start - 1] = 2 + (other[:, start - 1] - 1) % (cfg.model.vocab_size - 2)
    return not torch.equal(model.stream_start(ids)[:, start:], model.stream_start(other)[:, start:])
