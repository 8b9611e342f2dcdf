"""Proof that every plain setting acts that `drop` could take out: each is taken out, and something has to change.

What is compared depends on the setting's group: a pass through the model, steps of its optimizer under the schedule,
training batches, codes of tensors, or scores. All but the first are taken of small stand-ins made from the same `cfg`.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from golf.artifact.container import load, pack
from golf.artifact.quant.formats import CodedTensors, OwnFormat, own_formats
from golf.artifact.quant.policy import quantize, storage_class, storage_of, tensor_class
from golf.errors import GolfError
from golf.lab.proofs.random_model import noise
from golf.lab.proofs.scoring_proofs import small_scores
from golf.paths import import_variables
from golf.registry import CHANGES_STEP
from golf.settings.config import Config, ModelConfig, techniques, training_seconds
from golf.settings.dropping import OFF, keys_that_are_on, switch_off
from golf.training.data.batches import make_loader
from golf.training.data.dataset import Dataset
from golf.training.data.documents import BOS_ID
from golf.training.loop.checkpoint import flatten
from golf.training.loop.schedule import lr_multiplier, muon_momentum, muon_weight_decay, schedule_decay
from golf.training.model.build import build_model, shapeless_model
from golf.training.optim.groups import build_optimizer
from golf.training.optim.parallel_muon import ParallelMuon
from golf.training.optim.rules import replaces_muon

FRACTIONS = (0.0, 0.3, 0.6, 0.9)  # shares of the run at which steps are taken, before the last step
LARGE_GRADIENT = 1e3  # larger than any norm that clipping is meant for
SHARD_TOKENS, SEQ_LEN, BATCHES = 64, 8, 8
# Settings that depend on trained weights
LATE_QUANT = ("prune.to_fit", "step_sensitivity", "gptq.drift", "retrain.steps", "tune.steps")
SAMPLE = 128  # largest number of rows and columns of a tensor that is quantized
WEIGHTS_DIGEST = "import sys, golf.lab.proofs.setting_proofs as proofs; print(proofs.weights_digest(sys.argv[1]))"
SAME_SCORE = 1e-6  # nats; windows without overlap differ from the standard score by rounding


def inert_settings(cfg: Config, model_differs: Callable[[Config], bool]) -> list[str]:
    """Return a sentence for every plain setting that is on and changes nothing.

    `model_differs` tells whether loss or gradients of another configuration's model differ from those of `cfg`'s.
    """
    compared, failures = _Comparison(cfg, model_differs), _inert_rules(cfg)
    if formats := own_formats(cfg.tech):
        failures += [fault for form in formats.values() for fault in format_faults(form)] or _kept_in_memory(cfg)
    for name in OFF:
        keys = [key for key in keys_that_are_on(cfg, name) if not _shows_later(cfg, key)]
        if keys and _is_needed(_without(cfg, name, keys)):
            continue
        if keys and not compared.differs(_without(cfg, name, keys), keys):
            failures.append(f"{name} changed nothing: {', '.join(keys)} could as well be off")
        elif sum(key.startswith("optim.") for key in keys) > 1:
            failures += [f"{key} changed nothing: {name} does not need it" for key in _idle(cfg, name, keys)]
    return failures


def _inert_rules(cfg: Config) -> list[str]:
    """Return a sentence for every technique for the optimizer that changes no step, beside the others."""
    names = [name for name, technique in cfg.tech.items() if technique.effect == CHANGES_STEP]
    rests = [dataclasses.replace(cfg, tech={n: t for n, t in cfg.tech.items() if n != name}) for name in names]
    idle = [name for name, rest in zip(names, rests, strict=True) if _steps(rest) == _steps(cfg)]
    return [f"{name} changed no step of the optimizer" for name in idle]


def format_faults(form: OwnFormat) -> list[str]:
    """Return a sentence if codes, scales or values of a number format are not what it declares."""
    for shape in ((6, 256), (5, 7), (9,), (0, 4)):
        w, limit = noise("format", torch.Size(shape)).float(), 1 << form.bits - 1
        codes, scales = form.codes(w)
        values, count = form.values(codes, scales), form.scale_count(shape)
        found = [(tensor.dtype, tuple(tensor.shape)) for tensor in (codes, scales, values)]
        # In int8 the limit of eight bits would overflow.
        fits = ((codes >= -limit) & (codes <= limit - 1)).all() and values.isfinite().all()
        if found != [(torch.int8, shape), (form.scale_dtype, (count,)), (torch.float32, shape)] or not fits:
            return [
                f"the number format {form.name} gives a tensor {shape} not what it declares: int8 codes of its shape "
                f"in {form.bits} bits, {count} scales in {form.scale_dtype}, finite float32 values"
            ]
    return []


def _kept_in_memory(cfg: Config) -> list[str]:
    """Return a sentence if a new process reads other weights from an artifact than this one, which coded them."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "artifact.golf")
        path.write_bytes(pack(_coded_samples(cfg), cfg.model, cfg.quant, cfg.tech))
        command, env = [sys.executable, "-c", WEIGHTS_DIGEST, str(path)], {**os.environ, **import_variables()}
        done = subprocess.run(command, env=env, capture_output=True, encoding="utf-8")
        if done.stdout.split()[-1:] == [weights_digest(path)]:
            return []
    names = " or ".join(own_formats(cfg.tech))
    # A process that ends well may have printed warnings.
    fault = (
        done.stderr.strip().splitlines()[-1] if done.returncode else "it decodes with what its coding kept in memory"
    )
    return [f"a new process reads other weights of the number format {names} from the artifact: {fault}"]


def weights_digest(path: str | Path) -> str:
    """Return a hash of the weights that an artifact file stands for."""
    return hashlib.sha256(_bytes_of(*load(path).state_dict().values())).hexdigest()


def _is_needed(other: Config) -> bool:
    """Tell whether a technique refuses `other`, as gates of skips refuse a model without skips."""
    try:
        for technique in techniques(other):
            technique.check(other)
    except GolfError:
        return True
    return False


def _shows_later(cfg: Config, key: str) -> bool:
    """Tell whether a setting that is on need not show before the clock, in the small stand-ins of one rank."""
    # Pruning to fit depends on the trained weights' bytes; steps by sensitivity, drift and training on a rounded model.
    # One rank clips what the reduction would give, LARGE_GRADIENT hides the epsilon of rows, and one layer has no U-net
    # skip.
    late = key.removeprefix("quant.") in LATE_QUANT
    late = late or key in ("optim.clip_before_reduction", "optim.muon_row_eps") or _rests(cfg, key)
    return late or (key == "model.unet_skips" and cfg.model.num_layers < 2)


def _rests(cfg: Config, key: str) -> bool:
    """Tell whether a setting of Muon rests, because another method of a technique updates the matrices."""
    # The decay is that of the matrices, whoever updates them.
    of_muon = key.startswith("optim.muon") and key != "optim.muon_wd"
    return of_muon and replaces_muon(techniques(cfg), cfg)


def _idle(cfg: Config, name: str, keys: list[str]) -> list[str]:
    """Return those optimizer settings of a row that change no step, alone or beside the others."""
    keys = [key for key in keys if key.startswith("optim.")]
    found, whole, none = [], _steps(cfg), _steps(_without(cfg, name, keys))
    for key in keys:
        others = [other for other in keys if other != key]
        if whole == _steps(_without(cfg, name, [key])) and none == _steps(_without(cfg, name, others)):
            found.append(key)
    return found


def _without(cfg: Config, name: str, keys: list[str]) -> Config:
    other = copy.deepcopy(cfg)
    switch_off(other, name, keys)
    return other


class Multipliers(NamedTuple):
    """Values of the schedule at a step."""

    lr: float
    muon_momentum: float
    muon_weight_decay: float


class _Comparison:
    """Small models and schedules of one configuration, made once, to compare those of others with."""

    def __init__(self, cfg: Config, model_differs: Callable[[Config], bool]):
        self.model_differs = model_differs
        # Multipliers come before steps, because they are cheap and most often enough.
        steps: list[Callable[[Config], object]] = [_multipliers, _steps]
        self._makers: dict[str, list[Callable[[Config], object]]] = {
            "optim": steps,
            "schedule": steps,
            "data": [_batches],
            "quant": [_stored_bytes],
            "eval": [_scores],
        }
        self._own = functools.cache(lambda maker: maker(cfg))

    def differs(self, other: Config, keys: list[str]) -> bool:
        """Tell whether anything that the settings `keys` are for differs under `other`."""
        groups = dict.fromkeys(key.split(".")[0] for key in keys)
        makers = [maker for group in groups for maker in self._makers.get(group, [])]
        if "model" in groups and self.model_differs(other):
            return True
        return any(maker(other) != self._own(maker) for maker in makers)


def _multipliers(cfg: Config) -> list[Multipliers]:
    """Return what the schedule says at steps all over the run."""
    iterations, seconds = cfg.schedule.iterations, training_seconds(cfg)
    steps = [*(int(fraction * iterations) for fraction in FRACTIONS), iterations - 1]
    rates = [lr_multiplier(cfg, step, seconds * step / iterations) for step in steps]
    others = [(muon_momentum(cfg.optim, step), muon_weight_decay(cfg, step / iterations)) for step in steps]
    return [Multipliers(rate, *other) for rate, other in zip(rates, others, strict=True)]


def _steps(cfg: Config) -> bytes:
    """Return weights and optimizer of a small model after steps at `_multipliers`."""
    shape = ModelConfig(vocab_size=8, num_layers=1, model_dim=16, num_heads=2, num_kv_heads=1)
    # In bf16 on every machine, because there are settings for parameters in bf16.
    shape = dataclasses.replace(shape, tie_embeddings=cfg.model.tie_embeddings, compute_dtype="bf16")
    small = dataclasses.replace(cfg, model=shape, optim=dataclasses.replace(cfg.optim, muon_dtype="fp32"))
    small.tech = {name: technique for name, technique in cfg.tech.items() if technique.effect == CHANGES_STEP}
    model = build_model(small)
    optimizer = build_optimizer(small, model)
    gradients = {name: LARGE_GRADIENT * noise(name, p.shape).to(p.dtype) for name, p in model.named_parameters()}
    last = cfg.schedule.iterations - 1
    for i, (at_step, fraction) in enumerate(zip(_multipliers(cfg), (*FRACTIONS, last / (last + 1)), strict=True)):
        optimizer.zero_grad()
        for name, param in model.named_parameters():
            # Another gradient in each step: with equal ones the momentum would keep its direction at any setting.
            param.grad = gradients[name].flatten().roll(i).view(param.shape)
        schedule_decay(cfg, optimizer, fraction)
        optimizer.step(at_step.lr, at_step.muon_momentum)
    # Both forms of Muon take the same steps, so that the form itself is compared.
    changed = [*model.parameters(), *flatten(optimizer.state_dict()).values()]
    return bytes(isinstance(optimizer.muon, ParallelMuon)) + _bytes_of(*changed)


def _bytes_of(*tensors: Tensor) -> bytes:
    # The dtypes, too: zeros have the same bytes in any.
    kinds = repr([tensor.dtype for tensor in tensors]).encode()
    return kinds + b"".join(tensor.detach().reshape(-1).view(torch.uint8).numpy().tobytes() for tensor in tensors)


def _batches(cfg: Config) -> bytes:
    """Return the first training batches out of made-up shards. Each begins with BOS; no two other tokens are equal."""
    shards = max([7, *cfg.data.shard_order]) + 1
    tokens = np.arange(shards * SHARD_TOKENS, dtype=np.uint16).reshape(shards, SHARD_TOKENS)
    tokens[:, 0] = BOS_ID
    data = dataclasses.replace(
        cfg.data, vocab_size=tokens.size, train_batch_tokens=4 * SEQ_LEN, train_seq_len=SEQ_LEN, micro_batches=2
    )
    dataset = Dataset([], list(tokens), tokens[0], np.ones(SHARD_TOKENS - 1, np.int16), "")
    # An order by a technique may read tokens, and these are none of the vocabulary.
    loader = make_loader(dataclasses.replace(cfg, data=data, tech={}), dataset)
    return b"".join(t.numpy().tobytes() for _ in range(BATCHES) for t in loader.next_batch())


def _stored_bytes(cfg: Config) -> bytes:
    coded = _coded_samples(cfg).values()
    return b"".join(bytes(c.rotated) + _bytes_of(c.data, *([] if c.scale is None else [c.scale])) for c in coded)


def _coded_samples(cfg: Config) -> CodedTensors:
    """Return the stored form of a matrix, a vector and a scalar of every class of tensors."""
    kinds: dict[tuple[str, str, int, bool], tuple[str, Tensor, str]] = {}
    for name, tensor in shapeless_model(cfg).scored_weights().items():
        fmt = storage_of(name, tensor, cfg.quant, cfg.tech).format
        kind = storage_class(name, cfg.tech), tensor_class(name), tensor.ndim, tensor.numel() <= cfg.quant.small_numel
        kinds.setdefault(kind, (name, tensor, fmt))
    # Samples are small, so the format that the whole tensor gets is named.
    quant = dataclasses.replace(cfg.quant, small_numel=0, by_name={name: fmt for name, _, fmt in kinds.values()})
    state, hessians = {}, {}
    for name, tensor, _ in kinds.values():
        state[name] = noise(name, torch.Size([min(n, SAMPLE) for n in tensor.shape])).float()
        if tensor.ndim == 2:
            inputs = noise(f"inputs of {name}", torch.Size([2 * SAMPLE, min(tensor.shape[1], SAMPLE)]))
            # Channels of different strength, so that the order in which GPTQ rounds them matters.
            inputs = inputs * torch.linspace(0.2, 2.0, inputs.size(1))
            hessians[name] = (inputs.T @ inputs).float()
    return quantize(state, quant, hessians, cfg.tech)


def _scores(cfg: Config) -> frozenset[str]:
    """Return the scores that a run takes, in steps above rounding. Equal scores count once."""
    # As texts, because a score may be NaN.
    return frozenset(f"{score / SAME_SCORE:.0f}" for score in small_scores(cfg))
