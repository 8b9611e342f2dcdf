"""Score-first test-time training of low-rank factors, anew for every document.

A document is cut into chunks. A chunk is scored with factors that were trained on the document's earlier chunks alone;
then, and unless it is the document's last one, they take one step on it. Source: record 2026-03-17_LoRA_TTT.

Unlike there, a window ends where a whole chunk would end even if the document ends before. The public windows ended
with the document, so that how far back a score could look depended on where the text would stop.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from golf.bits import Score
from golf.settings.config import TTTConfig, TTTRecipe
from golf.training.data.byte_tables import ByteTables
from golf.training.data.documents import BOS_ID
from golf.training.model.gpt import GPT
from golf.training.optim.adam import Adam
from golf.training.ranks import Ranks
from golf.training.scoring.forward import losses_at
from golf.training.scoring.lora import BatchLoRA
from golf.training.scoring.tally import Observe, Tally, Watcher
from golf.training.scoring.windows import Batch

BETAS, EPS = (0.9, 0.95), 1e-10


def list_documents(tokens: np.ndarray, bos_id: int = BOS_ID) -> np.ndarray:
    """Documents `[n, 2]` of `tokens` `[N + 1]` as (start, targets): together they have each of the N targets once.

    The BOS that begins the next document is the last target of the one before; text before the first BOS is a
    document too.
    """
    targets = tokens.size - 1
    starts = np.flatnonzero(tokens[:-1] == bos_id)
    if not starts.size or starts[0] > 0:
        starts = np.concatenate(([0], starts))
    return np.stack((starts, np.diff(starts, append=targets)), axis=1)


def document_batches(documents: np.ndarray, chunk_tokens: int, batch_docs: int) -> list[np.ndarray]:
    """`documents` `[n, 2]` in batches of about equally many chunks each, short ones first."""
    chunks = -(-documents[:, 1] // chunk_tokens)
    ordered = documents[np.argsort(chunks, kind="stable")]
    return [ordered[i : i + batch_docs] for i in range(0, len(ordered), batch_docs)]


def chunk_batch(tokens: np.ndarray, documents: np.ndarray, chunk: int, chunk_tokens: int, seq_len: int) -> Batch:
    """The windows of chunk number `chunk` of every document `[n, 2]`."""
    starts, lengths = documents[:, :1], documents[:, 1:]
    window_end = (chunk + 1) * chunk_tokens  # in tokens of the document, as the two that follow
    window_start = max(0, window_end - seq_len)
    places = np.arange(chunk * chunk_tokens, window_end)
    indices, last = starts + places, tokens.size - 1
    return Batch(
        ids=tokens[np.minimum(starts + np.arange(window_start, window_end), last)].astype(np.int64),
        positions=np.broadcast_to(places - window_start, indices.shape).copy(),
        targets=tokens[np.minimum(indices + 1, last)].astype(np.int64),
        indices=indices,
        scored=places < lengths,
    )


@torch.no_grad()
def score_ttt_lora(
    model: GPT,
    tokens: np.ndarray,
    tables: ByteTables,
    *,
    ttt: TTTConfig,
    recipe: TTTRecipe,
    seed: int,
    ranks: Ranks | None = None,
    observe: Observe | None = None,
    watcher: Watcher | None = None,
) -> Score:
    """Score `tokens` `[N + 1]`; the ranks share the batches of documents. `model` is not changed."""
    ranks = ranks or Ranks()
    tally = Tally(tokens, tables, ranks, observe)
    groups = document_batches(list_documents(tokens), recipe.chunk_tokens, recipe.batch_seqs)
    own = groups[ranks.rank :: ranks.world_size]  # long ones are last: every rank gets some
    if watcher is not None:
        watcher.ttt_start(len(own), sum(len(documents) for documents in own))
    with torch.compiler.set_stance("force_eager"):  # compiled code would not see the hooks
        for i, documents in enumerate(own):
            lora = BatchLoRA(model, len(documents), ttt.lora_rank, seed).to(ranks.device)
            optimizer = Adam(list(lora.parameters()), lr=recipe.lr, betas=BETAS, eps=EPS)
            for losses, batch, lasting in _chunk_losses(model, lora, tokens, documents, recipe):
                tally.add(batch.indices, batch.scored, losses)
                if lasting.any():
                    _step(optimizer, losses, lasting)
            if watcher is not None:
                watcher.ttt_part(i + 1, len(own), tally.own_bpb(), tally.seconds)
    return tally.score(f"test-time training (lora), chunks of {recipe.chunk_tokens}")


def _chunk_losses(
    model: GPT, lora: BatchLoRA, tokens: np.ndarray, documents: np.ndarray, recipe: TTTRecipe
) -> Iterator[tuple[Tensor, Batch, np.ndarray]]:
    """Chunk by chunk: losses `[D, S]` with a gradient, what they are of, and which documents go on `[D]`.

    The documents are in the order of their numbers of chunks; those that have ended leave the batch.
    """
    chunks = -(-documents[:, 1] // recipe.chunk_tokens)
    handles = lora.attach()
    try:
        for chunk in range(int(chunks[-1])):
            row = int(np.searchsorted(chunks, chunk, side="right"))
            lora.keep_from(row)
            batch = chunk_batch(tokens, documents[row:], chunk, recipe.chunk_tokens, recipe.seq_len)
            ids, positions, targets = (
                torch.from_numpy(array).to(lora.head_factors.a.device)
                for array in (batch.ids, batch.positions, batch.targets)
            )
            lasting = chunk + 1 < chunks[row:]
            with torch.set_grad_enabled(bool(lasting.any())):
                losses = losses_at(model, ids, positions, targets, lora.head)
            yield losses, batch, lasting
    finally:
        for handle in handles:
            handle.remove()


@torch.enable_grad()
def _step(optimizer: Adam, losses: Tensor, lasting: np.ndarray) -> None:
    """One update on each document's mean loss over its chunk; those that end with it stay out."""
    going_on = torch.from_numpy(lasting).to(losses.device)
    loss = (losses.mean(dim=1) * going_on).sum()
    for param in optimizer.params:
        param.grad = None
    loss.backward(inputs=optimizer.params)  # not autograd.grad, whose strides the fused Adam would take for the params'
    optimizer.step(1.0)
