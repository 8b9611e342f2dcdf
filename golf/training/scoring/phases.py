"""Phases: training of all weights with SGD, between batches of documents, on the text of documents that are scored.

Source: records 2026-04-13 (one phase) and 2026-04-14 (three). Each phase begins with the weights that the last one
left. The text of a document ends with the BOS of the next one, as in the records.
"""

from __future__ import annotations

import math

import numpy as np

from golf.settings.config import TTTRecipe
from golf.settings.scoring_config import PhasesConfig
from golf.training.model.gpt import GPT
from golf.training.scoring.document_queue import Queue, pause_after
from golf.training.scoring.tally import Tally
from golf.training.scoring.ttt_sgd import SGDTrainer


def phase_documents(scored: Queue, most: int, order: str) -> np.ndarray:
    """Return the documents `[n, 2]` on which a phase trains, at most `most` of the scored ones, in their order.

    `queue` keeps the first of the queue, which are the longest. `upstream` keeps the shortest.
    """
    batches = sorted(scored, key=lambda batch: batch.place, reverse=order == "upstream")
    return np.concatenate([batch.documents for batch in batches])[:most]


def phase_text(tokens: np.ndarray, documents: np.ndarray) -> np.ndarray:
    """Return the tokens of `documents` `[n, 2]` end to end, each with the BOS that ends it."""
    return np.concatenate([tokens[start : start + targets + 1] for start, targets in documents.tolist()])


def train_phase(model: GPT, tally: Tally, phases: PhasesConfig, scored: Queue, number: int, seq_len: int) -> None:
    """Train phase `number`, counted from 1, on the documents of `scored`. All ranks take part; `model` is changed."""
    most = pause_after(phases.count, phases.documents)[number - 1]
    text = phase_text(tally.tokens, phase_documents(scored, most, phases.order))
    recipe = TTTRecipe(phases.lr, phases.chunk_tokens, phases.batch_seqs, seq_len)
    trainer = SGDTrainer(model, text, phases, recipe, tally.ranks)
    if phases.order == "upstream":
        # A rank's sequences are one row, in which a document goes on from one sequence to the next.
        trainer.losses = lambda ids, targets: model.token_losses(ids.reshape(1, -1), targets.reshape(1, -1))
    chunks = -(-(text.size - 1) // phases.chunk_tokens)
    # The last chunk is left out, so that the rate of the cosine ends at zero.
    for chunk in range(chunks - 1):
        begin = chunk * phases.chunk_tokens
        sequences = np.arange(begin, begin + phases.chunk_tokens - seq_len + 1, seq_len)
        trainer.train(sequences, phases.lr * 0.5 * (1.0 + math.cos(math.pi * chunk / (chunks - 1))))
