"""Score-first test-time training of low-rank factors, which start anew for every document.

A document is cut into chunks. A chunk is scored with factors that were trained on the document's earlier chunks alone.
Then the factors take one step on it, unless it is the document's last chunk. Source: record 2026-03-17_LoRA_TTT.

One thing differs from the record: a window ends where a whole chunk would end, even if the document ends before. The
record's windows ended with the document, so the length of a score's context told where the text would stop.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from golf.bits import Score
from golf.settings.config import TTTConfig, TTTRecipe
from golf.training.data.documents import BOS_ID
from golf.training.model.gpt import GPT
from golf.training.optim.adam import Adam
from golf.training.scoring.forward import losses_at
from golf.training.scoring.lora import BatchLoRA
from golf.training.scoring.tally import Tally, Watcher
from golf.training.scoring.windows import Batch

BETAS, EPS = (0.9, 0.95), 1e-10


def list_documents(tokens: np.ndarray, bos_id: int = BOS_ID) -> np.ndarray:
    """Return the documents `[n, 2]` of `tokens` `[N + 1]` as (start, targets), which cover each of the N targets once.

    The BOS that begins the next document is the last target of the one before. Text before the first BOS is a
    document too.
    """
    targets = tokens.size - 1
    starts = np.flatnonzero(tokens[:-1] == bos_id)
    if not starts.size or starts[0] > 0:
        starts = np.concatenate(([0], starts))
    return np.stack((starts, np.diff(starts, append=targets)), axis=1)


def document_batches(documents: np.ndarray, chunk_tokens: int, batch_docs: int) -> list[np.ndarray]:
    """Return `documents` `[n, 2]` in batches of similar numbers of chunks, short documents first."""
    chunks = -(-documents[:, 1] // chunk_tokens)
    # Documents of one batch end at about the same chunk, so that it stays full for nearly as long as it runs.
    ordered = documents[np.argsort(chunks, kind="stable")]
    return [ordered[i : i + batch_docs] for i in range(0, len(ordered), batch_docs)]


def chunk_batch(tokens: np.ndarray, documents: np.ndarray, chunk: int, chunk_tokens: int, seq_len: int) -> Batch:
    """Return the windows that score chunk number `chunk` of every document `[n, 2]`."""
    starts, lengths = documents[:, :1], documents[:, 1:]
    window_end = (chunk + 1) * chunk_tokens  # tokens from the start of the document, as in the two lines that follow
    window_start = max(0, window_end - seq_len)
    chunk_positions = np.arange(chunk * chunk_tokens, window_end)
    indices, last = starts + chunk_positions, tokens.size - 1
    return Batch(
        # Behind the split's end its last token is repeated, which no scored position sees.
        ids=tokens[np.minimum(starts + np.arange(window_start, window_end), last)].astype(np.int64),
        positions=np.broadcast_to(chunk_positions - window_start, indices.shape).copy(),
        targets=tokens[np.minimum(indices + 1, last)].astype(np.int64),
        indices=indices,
        scored=chunk_positions < lengths,
    )


@torch.no_grad()
def score_ttt_lora(
    model: GPT, tally: Tally, *, ttt: TTTConfig, recipe: TTTRecipe, seed: int, watcher: Watcher | None = None
) -> Score:
    """Return the score of the tokens of `tally`, whose batches of documents the ranks share.

    `model` is not changed. `seed` draws the factors that every document starts from.
    """
    ranks = tally.ranks
    groups = document_batches(list_documents(tally.tokens), recipe.chunk_tokens, recipe.batch_seqs)
    # Long documents come last. Dealt out in turn, every rank gets some.
    own = groups[ranks.rank :: ranks.world_size]
    if watcher is not None:
        watcher.ttt_start(len(own), sum(len(documents) for documents in own))
    # Compiled code would not see the hooks.
    with torch.compiler.set_stance("force_eager"):
        for i, documents in enumerate(own):
            lora = BatchLoRA(model, len(documents), ttt.lora_rank, seed).to(ranks.device)
            optimizer = Adam(list(lora.parameters()), lr=recipe.lr, betas=BETAS, eps=EPS)
            for losses, batch, lasting in _chunk_losses(model, lora, tally, documents, recipe):
                tally.add(batch.indices, batch.scored, losses)
                if lasting.any():
                    _step(optimizer, losses, ranks.send(lasting))
            if watcher is not None:
                watcher.ttt_part(i + 1, len(own), tally.own_bpb(), tally.seconds)
    return tally.score(f"test-time training (lora), chunks of {recipe.chunk_tokens}")


def _chunk_losses(
    model: GPT, lora: BatchLoRA, tally: Tally, documents: np.ndarray, recipe: TTTRecipe
) -> Iterator[tuple[Tensor, Batch, np.ndarray]]:
    """Yield for each chunk its losses `[D, S]` with a gradient, its batch, and which documents go on after it `[D]`.

    `documents` are sorted by their number of chunks, so that those that end leave the batch from its front.
    """
    chunks = -(-documents[:, 1] // recipe.chunk_tokens)
    handles = lora.attach()
    try:
        for chunk in range(int(chunks[-1])):
            row = int(np.searchsorted(chunks, chunk, side="right"))
            lora.keep_from(row)
            batch = chunk_batch(tally.tokens, documents[row:], chunk, recipe.chunk_tokens, recipe.seq_len)
            ids, positions, targets = map(tally.ranks.send, (batch.ids, batch.positions, batch.targets))
            lasting = chunk + 1 < chunks[row:]
            # After the last chunk of every document there is no step, so no graph is kept for one.
            with torch.set_grad_enabled(bool(lasting.any())):
                losses = losses_at(model, ids, positions, targets, lora.head)
            yield losses, batch, lasting
    finally:
        for handle in handles:
            handle.remove()


@torch.enable_grad()
def _step(optimizer: Adam, losses: Tensor, lasting: Tensor) -> None:
    """Take one step on each document's mean loss over its chunk; documents that end with the chunk stay out."""
    # A sum, because each document has factors of its own, which only its own mean reaches.
    loss = (losses.mean(dim=1) * lasting).sum()
    for param in optimizer.params:
        param.grad = None
    # Not autograd.grad, whose strides the fused Adam would take for the parameters'.
    loss.backward(inputs=optimizer.params)
    optimizer.step(1.0)
