"""Sensitivity to rounding: how far each matrix, rounded alone, takes the model from the trained one."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from golf.artifact.quant.formats import Tensors
from golf.artifact.quant.policy import dequantize_as, quantize_alone, storage_of
from golf.artifact.quant.sensitivity import step_factors
from golf.settings.config import Config
from golf.training.loop.tuning import log_likely
from golf.training.model.build import build_scored_model
from golf.training.model.gpt import GPT
from golf.training.ranks import Ranks

TOKENS = 16_384  # of all ranks, on which the divergences are measured
PASS_TOKENS = 2048  # of a pass, whose logits of two models are in memory at once


@torch.no_grad()
def measured_factors(
    cfg: Config,
    trained: GPT,
    weights: Tensors,
    hessians: Tensors,
    batches: Sequence[Tensor],
    ranks: Ranks,
    seconds_left: float,
) -> dict[str, Tensor]:
    """Return what `step_factors` does, with divergences on the first tokens of `batches`, this rank's ids `[B, T]`.

    `trained` has the `weights` and the arithmetic of scoring. All ranks get the same factors. After the first pass over
    all matrices, one that would not end within `seconds_left` is not begun.
    """
    start = time.perf_counter()
    measured = {n: storage_of(n, tensor, cfg.quant) for n, tensor in weights.items() if n in hessians}
    names = [name for name, how in measured.items() if how.clip in ("std", "matrix_std")]
    rounded = rounded_values(cfg, weights, hessians, names, (), ranks)
    stored = build_scored_model(cfg, ranks.device)
    stored.load_state_dict(weights)
    ids = torch.cat(list(batches))
    ids = ids[: max(1, TOKENS // ids.size(1) // ranks.world_size)]
    sums = torch.zeros(len(names), device=ranks.device)
    for done, rows in enumerate(ids.split(max(1, PASS_TOKENS // ids.size(1)))):
        # One clock for all, because every rank has to leave the loop after the same pass.
        if done and ranks.first(time.perf_counter() - start) * (done + 1) / done > seconds_left:
            break
        wanted = log_likely(trained, rows)
        for i, name in enumerate(names):
            stored.load_state_dict({name: rounded[name]}, strict=False)
            sums[i] += F.kl_div(log_likely(stored, rows), wanted, reduction="sum", log_target=True)
            stored.load_state_dict({name: weights[name]}, strict=False)
    ranks.sum_tensors([sums])
    sizes = {name: weights[name].numel() for name in names}
    return step_factors(dict(zip(names, sums.tolist(), strict=True)), sizes, cfg.quant.step_sensitivity)


def rounded_values(
    cfg: Config, weights: Tensors, hessians: Tensors, names: Sequence[str], repaired: Collection[str], ranks: Ranks
) -> dict[str, Tensor]:
    """Return the values that the stored tensors `names` stand for, each rounded by one of the ranks.

    Those of `repaired` get low-rank factors, which are for the matrices that are chosen among all.
    """
    values = {name: torch.zeros_like(weights[name], device=ranks.device) for name in names}
    for name in names[ranks.rank :: ranks.world_size]:
        coded = quantize_alone(name, weights, cfg.quant, hessians, cfg.tech, repaired)
        values[name].copy_(dequantize_as(coded, cfg.quant)[name])
    ranks.sum_tensors(list(values.values()))
    return values
