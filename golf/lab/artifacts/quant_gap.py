"""Costs of number formats in bits per byte and in bytes, measured on the weights of one trained run.

Weights are scored before and after quantization in the same batches of the same text in float32, so that most of the
text's noise cancels. The standard error is that of the paired differences between batches.
"""

from __future__ import annotations

import dataclasses
import math
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from golf.artifact.codec.codecs import require_codec
from golf.artifact.container import unpack
from golf.artifact.quant.formats import FLOAT_DTYPES, CodedTensors, Tensors, own_formats
from golf.artifact.quant.policy import is_control, storage_of, tensor_class
from golf.bits import bits_per_byte
from golf.errors import GolfError, MissingError
from golf.idea_folders import refuse_changed
from golf.run.folder import RunFolder
from golf.settings.composition import CONF_DIR, compose
from golf.settings.config import Config, tensor_classes, uses_gptq
from golf.training.data.dataset import Dataset, open_dataset
from golf.training.loop.calibration import calibrate
from golf.training.loop.packing import pack_model, round_model, round_rest
from golf.training.loop.retraining import retrain
from golf.training.loop.sensitivity import PASS_TOKENS
from golf.training.loop.tuning import log_likely, tune
from golf.training.model.build import build_scored_model
from golf.training.model.gpt import GPT
from golf.training.model.weights import read_weights
from golf.training.ranks import Ranks
from golf.training.scoring.scorer import Scorer
from golf.training.services import code_bytes

ENOUGH_TOKENS = 131_072  # gives standard errors of about 0.0001 bpb for int8 gaps


@dataclass(frozen=True)
class QuantGap:
    """Bits per byte before and after quantization under one format, with the bytes of the artifact."""

    name: str
    before_bpb: float
    after_bpb: float
    gap_bpb: float
    gap_standard_error: float
    kl_bpb: float  # divergence of the next token's distribution from the one before
    kl_standard_error: float
    artifact_bytes: int
    seconds: float  # seconds of calibrating, quantizing and packing
    tokens: int  # scored tokens
    without: tuple[str, ...] = ()  # number formats that no matrix of their class has


def quant_gaps(
    cfg: Config, weights: Tensors, stored: Mapping[str, Config], *, tokens: int = ENOUGH_TOKENS
) -> Iterator[QuantGap]:
    """Yield the gap under each of `stored`, as it is finished; `weights` are a run's of `cfg` before quantization.

    Each of `stored` is `cfg` with another storage, and with the techniques that give its number formats.
    At least `tokens` tokens of the validation split are scored if it has so many; 0 scores all of it.
    """
    cfg = _in_float32(cfg)
    dataset = _first_tokens(open_dataset(cfg), tokens, cfg)
    scorer = Scorer(cfg, dataset, Ranks(device=torch.device(cfg.launch.device)))
    weights = _in_order(weights, scorer.model.state_dict())
    trained = build_scored_model(cfg, scorer.ranks.device)
    trained.load_state_dict(weights)
    before, nats_before, byte_count = _nats_by_batch(scorer, weights)
    for name, other in stored.items():
        start = time.perf_counter()
        stored_as, quant = _in_float32(other), other.quant
        # Making the script takes seconds, and only what fits a cap asks for its size.
        code = code_bytes(stored_as) if quant.prune.to_fit or quant.fit == "cap" else 0
        coded = _rounded(stored_as, weights, code, dataset)
        if quant.tune.steps > 0:
            coded = tune(coded, weights, stored_as, dataset)
        packed = pack_model(stored_as, weights, coded).artifact
        seconds = time.perf_counter() - start
        after, nats_after, _ = _nats_by_batch(scorer, unpack(packed).state_dict())
        gap = paired_gap(nats_before, nats_after, byte_count)
        kl = _divergence(trained, scorer, byte_count)
        without, scored = formats_without_matrix(stored_as, weights), dataset.validation.size - 1
        yield QuantGap(name, before, after, *gap, *kl, len(packed), seconds, scored, without)


def _rounded(cfg: Config, weights: Tensors, code: int, dataset: Dataset) -> CodedTensors:
    """Return the stored form of `weights` before any tuning; `code` bytes count together with the artifact."""
    if cfg.quant.retrain.steps > 0:
        return round_rest(cfg, retrain(weights, cfg, code, dataset), code)
    return round_model(cfg, weights, code, calibrate(weights, cfg, dataset) if uses_gptq(cfg.quant) else None)


@torch.no_grad()
def _divergence(trained: GPT, scorer: Scorer, byte_count: int) -> tuple[float, float]:
    """Return the divergence of the scorer's model from `trained` in bits per byte, and its standard error.

    It needs no next token, so that the luck of the text is not in it (Kullback and Leibler 1951).
    """
    tokens, length = scorer.dataset.validation, scorer.seq_len
    rows = torch.from_numpy(tokens[: (tokens.size - 1) // length * length].astype(np.int64)).view(-1, length)
    nats: list[float] = []
    for ids in rows.to(scorer.ranks.device).split(max(1, PASS_TOKENS // length)):
        wanted = log_likely(trained, ids)
        of_all = F.kl_div(log_likely(scorer.model, ids), wanted, reduction="none", log_target=True)
        nats += of_all.sum((1, 2)).tolist()
    # Nothing is left out but the tokens behind the last whole row.
    return paired_gap(np.zeros(len(nats)), np.array(nats), byte_count * rows.numel() / (tokens.size - 1))


def formats_without_matrix(cfg: Config, weights: Tensors) -> tuple[str, ...]:
    """Return the number formats of classes with matrices in `weights` that none of these gets, as all are too small."""
    asked: dict[str, bool] = {}
    classes = tensor_classes(cfg.quant)
    for name, tensor in weights.items():
        wanted = classes[tensor_class(name)].format
        if tensor.ndim == 2 and not is_control(name, cfg.tech) and wanted not in FLOAT_DTYPES:
            has_it = storage_of(name, tensor, cfg.quant, cfg.tech).format == wanted
            asked[wanted] = asked.get(wanted, False) or has_it
    return tuple(sorted(form for form, has_it in asked.items() if not has_it))


def _in_order(weights: Tensors, state_dict: Tensors) -> dict[str, Tensor]:
    """Return `weights` in the order in which the run packed them. Raises `GolfError` if names or shapes differ."""
    # A file of weights sorts its names, and codecs compress a different order to different bytes.
    if {n: w.shape for n, w in weights.items()} != {n: w.shape for n, w in state_dict.items()}:
        raise GolfError("The weights are not those of the run's model: give the folder as the run left it.")
    return {name: weights[name] for name in state_dict}


def paired_gap(before: np.ndarray, after: np.ndarray, byte_count: float) -> tuple[float, float]:
    """Return the gap in bits per byte and its standard error, from the nats of each batch `[n]` before and after.

    Batches are taken as independent. One batch gives no estimate: the error is NaN.
    """
    per_byte = (after - before) / math.log(2) / byte_count
    error = math.sqrt(per_byte.size * per_byte.var(ddof=1)) if per_byte.size > 1 else math.nan
    return float(per_byte.sum()), error


def _nats_by_batch(scorer: Scorer, weights: Tensors) -> tuple[float, np.ndarray, int]:
    nats: list[float] = []
    score = scorer(weights, observe=lambda _, losses: nats.append(float(losses.sum())))
    assert math.isclose(bits_per_byte(sum(nats) / score.tokens, score.tokens, score.bytes), score.val_bpb)
    return score.val_bpb, np.array(nats), score.bytes


def _in_float32(cfg: Config) -> Config:
    """Return `cfg` for scoring in float32, in one process, eagerly, on this machine's GPU or CPU."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return dataclasses.replace(
        cfg,
        model=dataclasses.replace(cfg.model, attention="sdpa"),
        eval=dataclasses.replace(cfg.eval, dtype="fp32"),
        launch=dataclasses.replace(cfg.launch, nproc=1, device=device, compile="off"),
    )


def _first_tokens(dataset: Dataset, tokens: int, cfg: Config) -> Dataset:
    """Return `dataset` with the first `tokens` tokens of its validation split, in whole batches of the scorer."""
    batch = cfg.eval.val_batch_tokens // cfg.data.micro_batches
    # Whole batches, because gaps are paired batch by batch.
    wanted = math.ceil(tokens / batch) * batch + 1
    return dataclasses.replace(dataset, validation=dataset.validation[:wanted]) if tokens else dataset


HEAD = "| quant | before | after | gap | KL | artifact bytes | seconds |\n|---|---|---|---|---|---|---|"
FIRST = "int8"


def presets() -> list[str]:
    """Return the names of all `quant` presets, the baseline's first."""
    names = (path.stem for path in Path(CONF_DIR, "quant").glob("*.yaml"))
    return sorted(names, key=lambda name: (name != FIRST, name))


def stored_config(choice: str, cfg: Config) -> Config:
    """Return `cfg` stored under `choice`, a preset's name and overrides, at the run's own scale.

    An override may select a technique that gives a number format. Those that the run has need not be selected, and keep
    the run's settings. Raises `GolfError` for others.
    """
    name, *overrides = choice.split()
    if others := [o for o in overrides if not re.match(r"\+*(quant|tech)\b", o)]:
        raise GolfError(f"{choice}: {others[0]} sets neither quant nor tech; all else is the run's: leave it out.")
    # Beside a preset that does not name its format, a technique would be refused.
    own = [form for form in own_formats(cfg.tech) if re.search(rf"[=:]{form}\b", choice)]
    if kept := [form for form in own if f"tech.{form}." in choice]:
        raise GolfError(f"{choice}: the run has settings of tech {kept[0]}, which stay: leave others out.")
    selected = [f"tech=[{','.join(own)}]"] if own and "tech=" not in choice else []
    stored = compose([f"quant={name}", f"scale={cfg.scale.name}", "launch.nproc=1", *selected, *overrides])
    formats = {form: stored.tech[form] for form in own_formats(stored.tech)}
    return dataclasses.replace(cfg, quant=stored.quant, tech=formats | cfg.tech)


def gaps_of_run(folder: RunFolder, choices: Sequence[str] = (), *, tokens: int = ENOUGH_TOKENS) -> Iterator[QuantGap]:
    """Return the gaps of the weights in `folder` under `choices`, or under all presets whose codec is installed.

    Raises `GolfError` if the folder has no weights, or if the codec of a choice is not installed.
    """
    if not folder.config.is_file() or not folder.weights.is_file():
        raise GolfError(f"{folder.path} is not the folder of a finished run: it needs config.json and weights.")
    cfg = folder.read_config()
    refuse_changed(cfg.idea_code)
    stored = {choice: stored_config(choice, cfg) for choice in choices or presets()}
    # Before the first format, each of which takes seconds.
    for name, other in list(stored.items()):
        try:
            require_codec(other.quant.codec)
        except MissingError as error:
            if choices:
                raise
            del stored[name]
            print(f"warning: {name} is left out: {error}", file=sys.stderr)
    return quant_gaps(cfg, read_weights(folder.weights), stored, tokens=tokens)


def print_gaps(gaps: Iterator[QuantGap]) -> None:
    """Print a row in Markdown for each gap, as it is finished."""
    print(HEAD, flush=True)
    tokens, has_missing = 0, False
    for gap in gaps:
        # One batch of text has no standard error.
        error = f"{gap.gap_standard_error:.5f}".replace("nan", "unknown")
        scores = f"{gap.before_bpb:.4f} | {gap.after_bpb:.4f} | {gap.gap_bpb:+.5f} ± {error}"
        missing = f" (no matrix has {' or '.join(gap.without)} here)" if gap.without else ""
        has_missing |= bool(missing)
        kl = f"{gap.kl_bpb:.5f} ± {gap.kl_standard_error:.5f}".replace("nan", "unknown")
        print(f"| {gap.name}{missing} | {scores} | {kl} | {gap.artifact_bytes:,} | {gap.seconds:.1f} |", flush=True)
        tokens = gap.tokens
    print(f"\n{tokens:,} tokens, float32; bits per byte")
    if has_missing:
        print("Matrices of quant.small_numel weights or fewer stay fp16: a row without its format says nothing of it.")
