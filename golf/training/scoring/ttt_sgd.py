"""Score-first test-time training of all parameters with SGD, along the whole validation split.

The split is cut into chunks. A chunk is scored with weights that were trained on the chunks before it alone. Then it
is trained on, unless it is the last one. Scores are final. Source: PR #461, PR #549.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from golf.bits import Score
from golf.settings.config import TTTRecipe
from golf.settings.scoring_config import PhasesConfig, TTTConfig
from golf.training.model.gpt import GPT
from golf.training.ranks import Ranks
from golf.training.scoring.forward import LossesAt, compiled_losses
from golf.training.scoring.sliding import add_scores
from golf.training.scoring.tally import Tally, Watcher
from golf.training.scoring.windows import list_windows, split_first


class SplitChunk(NamedTuple):
    """Part of a split that is scored first and trained on afterwards."""

    windows: np.ndarray  # [n, 3]: start, first scored target, end
    sequences: np.ndarray  # [k]: starts of the sequences that are trained on after scoring


def list_chunks(targets: int, *, seq_len: int, stride: int, chunk_tokens: int) -> list[SplitChunk]:
    """Return the chunks of a split of `targets` targets, each with the windows whose first scored target lies in it.

    `chunk_tokens` is a multiple of `seq_len` and of `stride`.
    """
    windows = split_first(list_windows(targets, seq_len, stride), stride)
    first_of_chunk = np.arange(0, targets, chunk_tokens)
    bounds = [*np.searchsorted(windows[:, 1], first_of_chunk), len(windows)]
    chunks = []
    for i, begin in enumerate(first_of_chunk):
        # Nothing is scored after the last chunk, so training on it would be in vain.
        count = chunk_tokens // seq_len if i < len(first_of_chunk) - 1 else 0
        chunks.append(SplitChunk(windows[bounds[i] : bounds[i + 1]], begin + seq_len * np.arange(count)))
    _assert_scored_first(chunks, seq_len)
    return chunks


def _assert_scored_first(chunks: list[SplitChunk], seq_len: int) -> None:
    """Assert that a chunk is trained only on targets scored by its end, and that no target is scored twice."""
    windows = np.concatenate([chunk.windows for chunk in chunks])
    assert windows[0, 1] == 0 and (windows[1:, 1] == windows[:-1, 2]).all()
    for chunk in chunks:
        assert not chunk.sequences.size or chunk.sequences[-1] + seq_len <= chunk.windows[-1, 2]


class SGDTrainer:
    """SGD with momentum on sequences of `tokens`, which changes `model` in place. The momentum is this object's.

    An update's gradient is the mean over all its tokens, whatever the number of ranks: a rank without a sequence adds
    zeros, so that all ranks take part in the same reductions. Under `mode` `full` the training is compiled.
    """

    def __init__(
        self,
        model: GPT,
        tokens: np.ndarray,
        ttt: TTTConfig | PhasesConfig,
        recipe: TTTRecipe,
        ranks: Ranks,
        mode: str = "off",
    ):
        self.model, self.tokens, self.ttt, self.recipe, self.ranks = model, tokens, ttt, recipe, ranks
        self.losses = compiled_losses(model, mode)
        frozen = tuple(f"blocks.{i}." for i in range(ttt.freeze_blocks))
        self.params: list[Tensor] = [p for name, p in model.named_parameters() if not name.startswith(frozen)]
        self.momentum = [torch.zeros_like(p) for p in self.params]

    def warm_up(self) -> None:
        """Compile what `train` will run, on a text of zeros, so that the clock of a score need not stand for it."""
        chunk, most = self.recipe.chunk_tokens // self.recipe.seq_len, self.recipe.batch_seqs
        # The last update of a chunk has fewer sequences, and ranks differ by one. A text of one chunk trains on none.
        updates = [min(most, chunk - begin) for begin in range(0, chunk, most)]
        shares = {last - first for first, last in map(self.ranks.share, updates)}
        for own in shares - {0} if self.tokens.size - 1 > self.recipe.chunk_tokens else ():
            self._gradients(np.zeros((own, self.recipe.seq_len + 1), dtype=np.int64), own)

    def train(self, sequences: np.ndarray, lr: float) -> None:
        """Train all epochs on the sequences that begin at `sequences` `[k]`."""
        for _ in range(self.ttt.epochs):
            for begin in range(0, len(sequences), self.recipe.batch_seqs):
                self._update(sequences[begin : begin + self.recipe.batch_seqs], lr)

    @torch.no_grad()
    def _update(self, sequences: np.ndarray, lr: float) -> None:
        own = sequences[slice(*self.ranks.share(len(sequences)))]
        span = self.tokens[own[:, None] + np.arange(self.recipe.seq_len + 1)].astype(np.int64)
        gradients = self._gradients(span, len(sequences)) if own.size else [torch.zeros_like(p) for p in self.params]
        self.ranks.sum_tensors(gradients)
        # After the reduction, so that every rank scales alike.
        if self.ttt.grad_clip > 0:
            norm = nn.utils.get_total_norm(gradients)
            torch._foreach_mul_(gradients, (self.ttt.grad_clip / (norm + 1e-6)).clamp(max=1.0))
        torch._foreach_mul_(self.momentum, self.ttt.momentum)
        torch._foreach_add_(self.momentum, gradients)
        torch._foreach_add_(self.params, self.momentum, alpha=-lr)

    @torch.enable_grad()
    def _gradients(self, span: np.ndarray, sequences: int) -> list[Tensor]:
        """Return the part that the tokens `span` `[n, T + 1]` have in the mean loss's gradients over `sequences`."""
        ids = self.ranks.send(span)
        loss = self.losses(ids[:, :-1], ids[:, 1:]).sum() / (sequences * self.recipe.seq_len)
        # Unused parameters get zeros, so that every rank reduces the same list.
        gradients = torch.autograd.grad(loss, self.params, materialize_grads=True)
        # Reductions want contiguous memory.
        return [gradient.contiguous() for gradient in gradients]


@torch.no_grad()
def score_ttt_sgd(
    trainer: SGDTrainer,
    losses_at: LossesAt,
    tally: Tally,
    *,
    stride: int,
    batch_seqs: int,
    watcher: Watcher | None = None,
) -> Score:
    """Return the score of the tokens of `tally`; the trainer's model ends with the weights that it began with.

    `losses_at` is that of the trainer's model. The ranks share the windows of a chunk and the sequences of an update.
    `stride` 0 scores without overlap.
    """
    recipe, targets = trainer.recipe, tally.tokens.size - 1
    stride = stride or recipe.seq_len
    chunks = list_chunks(targets, seq_len=recipe.seq_len, stride=stride, chunk_tokens=recipe.chunk_tokens)
    if watcher is not None:
        watcher.ttt_start(len(chunks), sum(len(c.windows) for c in chunks))
    with weights_restored(trainer.model):
        for i, chunk in enumerate(chunks):
            score_chunk(tally, trainer, losses_at, chunk, stride, batch_seqs)
            # The rate falls as a cosine over the chunks, so that late chunks hardly move the weights.
            lr = recipe.lr * 0.5 * (1.0 + math.cos(math.pi * i / max(len(chunks) - 1, 1)))
            trainer.train(chunk.sequences, lr)
            if watcher is not None:
                watcher.ttt_part(i + 1, len(chunks), tally.own_bpb(), tally.seconds)
    return tally.score(f"test-time training (sgd), stride {stride}")


def score_chunk(
    tally: Tally, trainer: SGDTrainer, losses_at: LossesAt, chunk: SplitChunk, stride: int, batch_seqs: int
) -> None:
    """Score this rank's windows of `chunk` with the current weights, and add them to `tally`."""
    add_scores(tally, losses_at, chunk.windows, seq_len=trainer.recipe.seq_len, width=stride, batch_seqs=batch_seqs)


@contextlib.contextmanager
def weights_restored(model: nn.Module) -> Iterator[None]:
    """Restore the parameters of `model` after the block, also if it fails."""
    saved = [p.detach().clone() for p in model.parameters()]
    try:
        yield
    finally:
        with torch.no_grad():
            for param, value in zip(model.parameters(), saved, strict=True):
                param.copy_(value)
