"""Proofs before the clock that everything selected acts, whole, and that the scores are legal.

An experiment must not silently test something else. A proof that fails makes a run void, or stops it (see the `rules`
group). Passing proves little: what is selected changed something. The tests of a technique show that it changed the
right thing.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from golf.lab.proofs.edit_proofs import lost_edits
from golf.lab.proofs.parameter_proofs import misplaced_parameters, unused_parameters
from golf.lab.proofs.random_model import WHILE_SWITCHED, RandomWeights
from golf.lab.proofs.resume_proof import lost_batches, lost_by_loading, lost_by_resume
from golf.lab.proofs.scoring_proofs import (
    document_leaks,
    future_leaks,
    improper_predictor,
    scoring_breaches,
    small_scores,
    tokens_unchanged,
    unreached_phases,
)
from golf.lab.proofs.setting_proofs import inert_settings
from golf.run.progress import Progress
from golf.settings.config import Config, changes_order, changes_score, techniques
from golf.tables import grouped
from golf.training.data.batches import make_loader
from golf.training.data.dataset import Dataset
from golf.training.data.documents import BOS_ID
from golf.training.loop.checkpoint import checkpoint_seconds
from golf.training.loop.switches import switch_names
from golf.training.model.attention import cpu_kernels
from golf.training.model.build import build_model
from golf.training.ranks import ALONE, Ranks
from golf.training.techniques.base import (
    CHANGES_GRADIENT,
    CHANGES_INIT,
    CHANGES_LOSS,
    CHANGES_ORDER,
    CHANGES_SCORE,
    Technique,
)

SEQUENCES, TOKENS = 2, 24
MORE_SEQUENCES = 64  # where a parameter seems unused
HALFWAY = Progress(step=1, fraction=0.5, lr_multiplier=0.5)
BATCHES = 8  # micro-batches that show an order of the training text


@torch.random.fork_rng(devices=[])
@cpu_kernels()
def failed_proofs(cfg: Config, ranks: Ranks = ALONE, dataset: Dataset | None = None) -> list[str]:
    """Return a sentence for everything of this rank's share that does not act as it should, and for illegal scores.

    With the run's `dataset` it is proved, too, that the loader of a run with checkpoints goes on after a resume.
    """
    passes = RandomPasses(cfg)
    # The proofs are dealt out: seven GPUs that wait for the eighth rank's CPU cost seven times as much.
    proofs: list[Callable[[], list[str]]] = [
        lambda: [*misplaced_parameters(cfg), *lost_edits(cfg), *passes.unused()],
        lambda: inert_settings(cfg, passes.differ),
        *(functools.partial(passes.inert, technique) for technique in techniques(cfg)),
        lambda: [*scoring_breaches(cfg), *document_leaks(cfg), *future_leaks(cfg)],
        lambda: improper_predictor(cfg) if changes_score(cfg) else [],
        # A run without checkpoints, too, must not begin with what its warm-up has left.
        lambda: [*lost_by_resume(cfg), *(lost_by_loading(cfg) if cfg.tech else [])],
        lambda: lost_batches(cfg, dataset) if dataset and checkpoint_seconds(cfg) else [],
        lambda: unchanged_order(cfg, dataset) if dataset and changes_order(cfg) else [],
        lambda: unreached_phases(cfg, dataset) if dataset and cfg.eval.ttt.method == "lora" else [],
    ]
    failures = (failure for proof in proofs[ranks.rank :: ranks.world_size] for failure in proof())
    # What is wrong with one layer is wrong with all of them.
    alike = grouped((re.sub(r"\d+", "", failure), failure) for failure in failures)
    return [first + (f" (and {len(more)} alike)" if more else "") for first, *more in alike.values()]


class RandomPasses:
    """Passes through the model of `cfg` and its variations at equal random weights, on the CPU.

    Float64 shows an effect below a float32 rounding step, too.
    """

    def __init__(self, cfg: Config, progress: Progress = WHILE_SWITCHED):
        self.cfg, self.progress, self.weights = cfg, progress, RandomWeights(cfg.model.model_dim, progress)
        generator = torch.Generator().manual_seed(0)
        tokens = TOKENS + 2 * tokens_unchanged(cfg)
        self.ids = torch.randint(cfg.model.vocab_size, (SEQUENCES, tokens + 1), generator=generator)
        # Attention within documents shows only where there are several.
        self.ids[:, tokens // 2] = BOS_ID
        self._loss: float | None = None
        self._sums: dict[str, float | None] | None = None

    def inert(self, technique: Technique) -> list[str]:
        """Return a sentence for every declared effect that the model of `cfg` has without the technique, too."""
        cfg, name, failures = self.cfg, technique.name, []
        if technique.effect == CHANGES_INIT and _same_start(cfg, technique):
            failures.append(f"{name} changed no weight at the start")
        if technique.effect == CHANGES_GRADIENT and not self.differ(without(cfg, name)):
            failures.append(f"{name} changed neither the loss nor a gradient")
        if technique.effect == CHANGES_LOSS:
            other = without(cfg, name)
            if not self.differ(other, by_gradients=True):
                failures.append(f"{name} changed no gradient of the network by its training loss")
            if not torch.equal(self._scored(cfg), self._scored(other)):
                failures.append(f"{name} changes the score, and as a training loss it must not")
        if technique.effect == CHANGES_SCORE and small_scores(cfg) == small_scores(without(cfg, name)):
            failures.append(f"{name} changed no score")
        if technique.separates_documents() and _leaks_across_documents(cfg, technique):
            failures.append(f"{name} mixes tokens across document starts although it says it does not")
        return failures

    def differ(self, other: Config, *, by_gradients: bool = False) -> bool:
        """Tell whether loss or gradients of `other`'s model differ from those of the model of `cfg`.

        Compared are the gradients of parameters that every model has: a technique's own count by their effect on these.
        What fades out by the end of the training is looked for halfway, too.
        """
        if self._loss is None:
            self._loss = self._loss_of(self.cfg)
        # Nearly always the loss differs, which saves the backward pass.
        if not by_gradients and self._loss_of(other) != self._loss:
            return True
        if self._sums is None:
            self._sums = self._gradient_sums(self.cfg)
        if self._gradient_sums(other) != self._sums:
            return True
        return self.progress != HALFWAY and RandomPasses(self.cfg, HALFWAY).differ(other, by_gradients=by_gradients)

    def unused(self) -> list[str]:
        """Return a sentence for every parameter or row that the loss does not depend on, switched or not."""
        model = self.weights.model(self.cfg)
        failures = unused_parameters(self.cfg, model, self._gradients(model, switch_names(self.cfg)))
        if failures and len(self.ids) == SEQUENCES:
            # So few tokens may reach none of a layer's experts.
            more, shape = RandomPasses(self.cfg, self.progress), (MORE_SEQUENCES, self.ids.size(1))
            more.ids = torch.randint(self.cfg.model.vocab_size, shape, generator=torch.Generator().manual_seed(1))
            return more.unused()
        if failures and switch_names(self.cfg):
            before = unused_parameters(self.cfg, model, self._gradients(model, ()))
            # Some rows act before a switch only, and others after it: unused is what acts in neither state.
            failures = [failure for failure in failures if failure in before]
        if failures and self.progress != HALFWAY:
            failures = [failure for failure in RandomPasses(self.cfg, HALFWAY).unused() if failure in failures]
        return failures

    @torch.no_grad()
    def _loss_of(self, cfg: Config) -> float:
        return float(self.weights.model(cfg)(self.ids[:, :-1], self.ids[:, 1:], switch_names(cfg)))

    @torch.no_grad()
    def _scored(self, cfg: Config) -> Tensor:
        """Return the nats of the tokens, as a score reads them."""
        return self.weights.model(cfg).token_losses(self.ids[:, :-1], self.ids[:, 1:], switch_names(cfg))

    def _gradient_sums(self, cfg: Config) -> dict[str, float | None]:
        gradients = self._gradients(self.weights.model(cfg), switch_names(cfg))
        # Few techniques remove these, as fused_qkv removes the queries' matrix and swiglu the plain MLP.
        shared = ["tok_emb.weight", *(f"blocks.{i}.attn.proj.weight" for i in range(cfg.model.num_layers))]
        found = {name: gradients[name] for name in shared if name in gradients}
        return {name: None if gradient is None else gradient.abs().sum().item() for name, gradient in found.items()}

    def _gradients(self, model: Any, active: tuple[str, ...]) -> dict[str, Tensor | None]:
        loss = model(self.ids[:, :-1], self.ids[:, 1:], active)
        names, params = zip(*model.named_parameters(), strict=True)
        return dict(zip(names, torch.autograd.grad(loss, params, allow_unused=True), strict=True))


def without(cfg: Config, name: str) -> Config:
    """Return `cfg` without the technique `name` and without those that require it."""
    return dataclasses.replace(cfg, tech={k: t for k, t in cfg.tech.items() if k != name and name not in t.requires})


def unchanged_order(cfg: Config, dataset: Dataset) -> list[str]:
    """Return a sentence if the first batches are those of a run without the technique that orders the text."""
    (name,) = (technique.name for technique in techniques(cfg) if technique.effect == CHANGES_ORDER)
    ordered, plain = make_loader(cfg, dataset), make_loader(without(cfg, name), dataset)
    # Batches of one or two sequences may be equal by accident, or as easy ones are at the start of both.
    pairs = [(ordered.next_batch()[0], plain.next_batch()[0]) for _ in range(BATCHES)]
    return [f"{name} changed no batch of the first {BATCHES}"] if all(torch.equal(*pair) for pair in pairs) else []


def _same_start(cfg: Config, technique: Technique) -> bool:
    model, plain = build_model(cfg).state_dict(), build_model(without(cfg, technique.name)).state_dict()
    return all(torch.equal(tensor, plain[name]) for name, tensor in model.items() if name in plain)


def _leaks_across_documents(cfg: Config, technique: Any) -> bool:
    """Tell whether the stream from a document's first token on depends on the document before it."""
    model = RandomWeights(cfg.model.model_dim).model(dataclasses.replace(cfg, tech={technique.name: technique}))
    # From 2 on, because an accidental BOS would begin another document.
    ids = torch.arange(TOKENS)[None] % (cfg.model.vocab_size - 2) + 2
    start = TOKENS // 2
    ids[:, start] = technique.bos_id
    other = ids.clone()
    other[:, start - 1] = 2 + (other[:, start - 1] - 1) % (cfg.model.vocab_size - 2)
    return not torch.equal(model.stream_start(ids)[:, start:], model.stream_start(other)[:, start:])
