"""Score-first test-time training of low-rank factors on single documents.

A document is cut into chunks. A chunk is scored with factors that were trained on the document's earlier chunks alone.
Then the factors take a step on it, unless it is the document's last chunk. The next document begins with B = 0.
Sources: record 2026-03-17_LoRA_TTT; records from 2026-04-10 on for the other settings, with phases from 2026-04-13 on.

Two things differ from the records unless settings ask for them. A window ends where a whole chunk would end, even if
the document ends before: a window that ends with the document tells by its context where the text stops. And the
documents' queues are the same for any number of ranks, which matters where a row inherits its A.
"""

from __future__ import annotations

import contextlib

import numpy as np
import torch
from torch import Tensor

from golf.bits import Score
from golf.settings.config import TTTRecipe
from golf.settings.scoring_config import TTTConfig
from golf.training.model.documents import across_documents
from golf.training.model.gpt import GPT
from golf.training.optim.adam import Adam
from golf.training.scoring.document_queue import (
    QueuedBatch,
    Segment,
    document_batches,
    forwarded_tokens,
    list_documents,
    pause_after,
    plan_segments,
)
from golf.training.scoring.forward import losses_at
from golf.training.scoring.lora import BatchLoRA
from golf.training.scoring.phases import train_phase
from golf.training.scoring.tally import Tally, Watcher
from golf.training.scoring.ttt_sgd import weights_restored
from golf.training.scoring.windows import Batch

EPS = 1e-10
LANES = 8  # as many as the public runs have GPUs
SEED_STRIDE = 1_000_003  # between the seeds of two batches


def chunk_batch(
    tokens: np.ndarray, documents: np.ndarray, chunk: int, chunk_tokens: int, seq_len: int, windows: str
) -> Batch:
    """Return the windows that score chunk number `chunk` of every document `[n, 2]`."""
    starts, lengths = documents[:, :1], documents[:, 1:]
    # Tokens from the start of the document, `[n, 1]`, as in the lines that follow.
    window_end = np.full_like(lengths, (chunk + 1) * chunk_tokens)
    if windows == "document":
        window_end = np.minimum(window_end, lengths)
    window_start = np.maximum(0, window_end - seq_len)
    width = int((window_end - window_start).max())
    chunk_positions = chunk * chunk_tokens + np.arange(chunk_tokens)
    indices, last = starts + chunk_positions, tokens.size - 1
    return Batch(
        # Behind the split's end its last token is repeated, which no scored position sees.
        ids=tokens[np.minimum(starts + window_start + np.arange(width), last)].astype(np.int64),
        # Columns behind a document's end may read any position, because they are not scored.
        positions=np.minimum(chunk_positions - window_start, width - 1),
        targets=tokens[np.minimum(indices + 1, last)].astype(np.int64),
        indices=indices,
        scored=chunk_positions < lengths,
    )


def lora_segments(queue: list[QueuedBatch], ttt: TTTConfig, recipe: TTTRecipe, world_size: int) -> list[Segment]:
    """Return the batches of `queue` in lanes, cut where a phase trains; rank r scores lanes r, r + `world_size`, …"""
    phases = ttt.lora_phases
    costs = [forwarded_tokens(b, recipe.chunk_for(int(b.documents[-1, 1])), recipe.seq_len) for b in queue]
    # Where no batch depends on another, scores are the same on any number of lanes.
    independent = not phases.count and ttt.lora_a != "kept"
    lanes = world_size if independent or ttt.lora_queue == "upstream" else LANES
    return plan_segments(queue, costs, lanes, pause_after(phases.count, phases.documents))


class LoraScoring:
    """One scoring of the tokens of `tally` by `model`, which ends with the weights that it began with.

    `documents` `[n, 2]` are those of `list_documents` if none are given. `seed` draws the factors.
    """

    def __init__(
        self,
        model: GPT,
        tally: Tally,
        ttt: TTTConfig,
        recipe: TTTRecipe,
        seed: int,
        documents: np.ndarray | None = None,
    ):
        self.model, self.tally, self.ttt, self.recipe, self.seed = model, tally, ttt, recipe, seed
        self.ranks = tally.ranks
        documents = list_documents(tally.tokens) if documents is None else documents
        self.queue = document_batches(documents, recipe.batch_seqs)
        tally.queued = np.concatenate([batch.documents for batch in self.queue])
        self.segments = lora_segments(self.queue, ttt, recipe, self.ranks.world_size)
        self.own_batches = [batch for segment in self.segments for lane in self._own(segment) for batch in lane]
        self.done = 0

    def _own(self, segment: Segment) -> Segment:
        return segment[self.ranks.rank :: self.ranks.world_size]

    @torch.no_grad()
    def score(self, watcher: Watcher | None = None) -> Score:
        """Return the score of all batches, which the ranks share, with the training of all weights in the pauses."""
        # Compiled code would not see the hooks.
        with torch.compiler.set_stance("force_eager"):
            self._run(watcher)
        return self.tally.score(describe_lora(self.ttt, self.recipe, len(self.segments) - 1))

    def _run(self, watcher: Watcher | None) -> None:
        if watcher is not None:
            watcher.ttt_start(len(self.own_batches), sum(len(batch.documents) for batch in self.own_batches))
        scored: list[QueuedBatch] = []
        # Without phases the weights never change, and no copy of them is kept.
        with weights_restored(self.model) if self.ttt.lora_phases.count else contextlib.nullcontext():
            for number, segment in enumerate(self.segments):
                if self.ttt.lora_phases.count and number:
                    train_phase(self.model, self.tally, self.ttt.lora_phases, scored, number, self.recipe.seq_len)
                # A window lies within one document, and attention to the whole row is faster.
                with across_documents(self.model):
                    for lane in self._own(segment):
                        self._score_lane(lane, watcher)
                scored += [batch for lane in segment for batch in lane]

    def _score_lane(self, lane: list[QueuedBatch], watcher: Watcher | None) -> None:
        kept: BatchLoRA | None = None
        for batch in lane:
            is_full = len(batch.documents) == self.recipe.batch_seqs
            lora = kept if kept is not None and is_full else self._new_factors(batch)
            lora.forget()
            if is_full and self.ttt.lora_a == "kept":
                kept = lora
            self._score_batch(lora, batch.documents)
            self.done += 1
            if watcher is not None:
                watcher.ttt_part(self.done, len(self.own_batches), self.tally.own_bpb(), self.tally.seconds)

    def _new_factors(self, batch: QueuedBatch) -> BatchLoRA:
        # Where all documents start from one A, batches do, too.
        seed = self.seed if self.ttt.lora_a == "same" else self.seed + SEED_STRIDE * (batch.place + 1)
        return BatchLoRA(self.model, len(batch.documents), self.ttt, seed)

    def _score_batch(self, lora: BatchLoRA, documents: np.ndarray) -> None:
        ttt = self.ttt
        params, betas = list(lora.parameters()), (ttt.lora_beta1, ttt.lora_beta2)
        optimizer = Adam(params, lr=self.recipe.lr, betas=betas, eps=EPS, weight_decay=ttt.lora_weight_decay)
        handles = lora.attach()
        try:
            for chunk in range(self._chunks(documents)[-1]):
                for step in range(ttt.lora_steps):
                    nats, batch, lasting = self._score_chunk(lora, documents, chunk)
                    # Before the first step, and never again.
                    if step == 0:
                        self.tally.add(batch.indices, batch.scored, self.tally.scores(batch, nats.detach()))
                    if not lasting.any():
                        break
                    _step(optimizer, nats, self.ranks.send(lasting))
        finally:
            for handle in handles:
                handle.remove()

    def _chunks(self, documents: np.ndarray) -> np.ndarray:
        """Return the number of chunks of each document of a batch."""
        return -(-documents[:, 1] // self.recipe.chunk_for(int(documents[-1, 1])))

    def _score_chunk(self, lora: BatchLoRA, documents: np.ndarray, chunk: int) -> tuple[Tensor, Batch, np.ndarray]:
        """Return the nats `[K, D, S]` of what a chunk's scores need, its targets, and which documents `[D]` go on.

        `documents` are sorted by length, so that ended ones leave from the front.
        """
        chunks, seq_len = self._chunks(documents), self.recipe.seq_len
        chunk_tokens = self.recipe.chunk_for(int(documents[-1, 1]))
        row = int(np.searchsorted(chunks, chunk, side="right"))
        lora.keep_from(row)
        tokens, windows = self.tally.tokens, self.ttt.lora_windows
        batch = chunk_batch(tokens, documents[row:], chunk, chunk_tokens, seq_len, windows)
        ids, positions, asked = map(self.ranks.send, (batch.ids, batch.positions, self.tally.asked(batch)))
        lasting = chunk + 1 < chunks[row:]
        # After the last chunk of every document there is no step, so no graph is kept for one.
        with torch.set_grad_enabled(bool(lasting.any())):
            nats = losses_at(self.model, ids, positions, asked, lora.head)
        return nats, batch, lasting


@torch.enable_grad()
def _step(optimizer: Adam, nats: Tensor, lasting: Tensor) -> None:
    """Take one step on each document's mean loss over its chunk; documents that end with the chunk stay out.

    The first of the `nats` `[K, D, S]` are those of the targets.
    """
    # A sum, because each document has factors of its own, which only its own mean reaches.
    loss = (nats[0].mean(dim=1) * lasting).sum()
    for param in optimizer.params:
        param.grad = None
    # Not autograd.grad, whose strides the fused Adam would take for the parameters'.
    loss.backward(inputs=optimizer.params)
    optimizer.step(1.0)


def describe_lora(ttt: TTTConfig, recipe: TTTRecipe, trained: int) -> str:
    """Return the name of this kind of score, as results and tables show it.

    A text of few documents ends before the phases that are asked for: then the name says how many of them `trained`.
    """
    asked = ttt.lora_phases.count
    few = f"{trained} of " if trained < asked else ""
    phases = f", {few}{asked} phases of SGD on {ttt.lora_phases.documents} documents" if asked else ""
    published = ", windows end with the document (as published)" if ttt.lora_windows == "document" else ""
    sizes = [f"{size} up to {most} tokens" for most, size in recipe.lora_chunks] + [str(recipe.chunk_tokens)]
    return f"test-time training (lora), chunks of {', '.join(sizes)}{phases}{published}"
