"""Excess bits: how many more bits a weight trained matrices take than Gaussian ones. They correct a simulation.

Trained rows are nearly Gaussian, but not independent. Columns of embeddings are correlated, and golf's own coder uses
that. Columns of wide matrices differ in size, and heavy tails count where the largest weight sets the scale. The excess
changes smoothly with the optimizer's path length, the batch and the matrix's shape. A linear prior predicts it for
each role. Finished runs of one's own, learned by a Gaussian process, did not make it better (docs/benchmarks_log.md).

The priors in priors.csv are least-squares fits with a small ridge over small runs (made by
`scripts/bench_plan.py --fit` of 0.3.0), one for each scale rule, kind of codec and kind of matrix. Priors for byte
codecs were fitted with zstd 22 where the scale is k deviations, and with zlib 9 otherwise. A standard deviation is
never below 0.02, because residuals of a few runs underestimate those of new runs. For the two matrices of an untied
head, which eight runs had, the least is 0.04.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from golf.artifact.quant.formats import QMAX
from golf.artifact.quant.policy import tensor_class
from golf.settings.config import Config, QuantConfig, TensorQuant, scale_floor

NORMAL_PATH, NORMAL_BATCH = 3.0, 8192  # path length and tokens a step at which priors are stated


@dataclass(frozen=True)
class Features:
    """The properties of a run that the excess bits of a role depend on."""

    path: float  # learning rate summed over the steps, see `weight_size.path_length`
    batch_tokens: int
    rows: int
    columns: int

    def coordinates(self) -> tuple[float, float, float]:
        """Return the logarithms of path, batch and columns / rows."""
        return math.log(max(self.path, 1e-3)), math.log(self.batch_tokens), math.log(self.columns / self.rows)


class ExcessBits(NamedTuple):
    """Expected excess in bits a weight, and its standard deviation."""

    bits: float
    sd: float


class Prior(NamedTuple):
    """A shipped linear prior of the excess, in bits a weight."""

    bits: float  # at path 3, 8,192 tokens a step and a square matrix
    path: float = 0.0  # slope over log path
    batch: float = 0.0  # slope over log batch
    aspect: float = 0.0  # slope over log columns / rows
    sd: float = 0.03  # standard deviation of smooth deviations from the prior
    noise: float = 0.01  # standard deviation of one run against its neighbours

    def expected(self, features: Features) -> ExcessBits:
        """Return the expected excess of a run with `features`."""
        path, batch, aspect = features.coordinates()
        path, batch = path - math.log(NORMAL_PATH), batch - math.log(NORMAL_BATCH)
        bits = self.bits + self.path * path + self.batch * batch + self.aspect * aspect
        return ExcessBits(bits, math.hypot(self.sd, self.noise))


def _shipped() -> dict[tuple[str, str, str], Prior]:
    """Return the priors of priors.csv by scale rule, kind of codec (context or bytes) and kind of matrix."""
    with Path(__file__).with_name("priors.csv").open(newline="", encoding="utf-8") as file:
        _, *rows = csv.reader(file)
    return {(rule, codec, kind): Prior(*map(float, numbers)) for rule, codec, kind, *numbers in rows}


PRIORS = _shipped()
UNKNOWN = {"std": Prior(0.0, sd=0.06), "max": Prior(0.0, sd=0.1, noise=0.02), "floor": Prior(0.0, sd=0.1, noise=0.02)}
# Bits a weight that GPTQ adds: its corrections widen the distribution of codes and make columns less alike.
GPTQ = {"std": ExcessBits(0.045, 0.017), "max": ExcessBits(0.002, 0.005), "floor": ExcessBits(0.01, 0.01)}
GPTQ_EMBED = {**GPTQ, "std": ExcessBits(0.086, 0.03)}
# The same for a trellis, whose codes are split into two sets with statistics of their own (docs/benchmarks.md).
TRELLIS, TRELLIS_EMBED = ExcessBits(0.013, 0.01), ExcessBits(0.064, 0.02)
# What one step for a whole embedding takes off: its rows differ in size, and rare tokens get short codes. Where a step
# has FEW tokens for each piece it is all of this, and nothing from MANY on, as then every row moves in every step.
ONE_STEP_EMBED, FEW, MANY = ExcessBits(-0.27, 0.1), 2, 16
# Steps, in standard deviations of the weights, at which the priors were fitted: int6 at 12.85, int8 at 20.
NORMAL_STEP, NORMAL_STEP_EMBED = 12.85 / 31, 20 / 127
# Bits a weight for each unit of log step: the errors that GPTQ passes on grow with the step (docs/planning.md).
COARSER = {"gptq": ExcessBits(0.10, 0.05), "trellis": ExcessBits(0.055, 0.04)}
COARSER_EMBED = {"gptq": ExcessBits(0.10, 0.05), "trellis": ExcessBits(0.12, 0.04)}
# What an embedding takes off under scales from the largest weights at three quarters of RARELY tokens for each piece:
# Adam's first steps have one size, so the codes of rare rows repeat (docs/planning.md). From RARELY on it is nothing.
RARE_ROWS, RARELY = ExcessBits(-0.7, 0.35), 100
COLUMN_BITS = 3.3  # bits of a column's step
TUNED_ROW = ExcessBits(6.0, 0.75)  # what a row's scale takes once a tuning has changed it (docs/studies/bytes.md)
COLUMNS_EMBED = ExcessBits(0.05, 0.07)  # what steps of columns add in embeddings, whose columns predict each other


def scale_rule(how: TensorQuant, quant: QuantConfig) -> str:
    """Return what sets the scale of a row: `std` for k deviations, `max` for its largest weights, or `floor`."""
    if scale_floor(how, quant) != "eps":
        return "floor"
    return "std" if how.clip in ("std", "matrix_std") else "max"


def matrix_kind(role: str, tied: bool) -> str:
    """Return the kind of a role's matrices; those of one kind share a prior."""
    if role.startswith("tok_emb"):
        return "tok_emb" if tied else "untied tok_emb"
    if role.startswith("lm_head"):
        return "lm_head"
    # Tables of techniques, such as bigrams, are looked up like embeddings.
    if "emb" in role and "proj" not in role:
        return "table"
    # Parameters of the whole model, such as skip_weights, have no module in their name.
    return role.split(".")[-2] if "." in role else role


def prior_of(role: str, how: TensorQuant, cfg: Config) -> Prior:
    """Return the shipped prior of a role stored as `how`."""
    rule = scale_rule(how, cfg.quant)
    # Byte codecs do not see columns, so they share their priors.
    codec = "context" if cfg.quant.codec == "context" else "bytes"
    return PRIORS.get((rule, codec, matrix_kind(role, cfg.model.tie_embeddings)), UNKNOWN[rule])


def one_step_excess(role: str, how: TensorQuant, cfg: Config, batch_tokens: float) -> ExcessBits:
    """Return the (negative) bits that one step for a whole embedding adds, trained by `batch_tokens` at a time."""
    if how.clip != "matrix_std" or cfg.quant.codec != "context" or tensor_class(role) != "embed":
        return ExcessBits(0.0, 0.0)
    share = math.log(MANY * cfg.model.vocab_size / batch_tokens) / math.log(MANY / FEW)
    return ExcessBits(ONE_STEP_EMBED.bits * min(1.0, max(0.0, share)), ONE_STEP_EMBED.sd)


def rare_rows_excess(role: str, how: TensorQuant, cfg: Config, tokens: float) -> ExcessBits:
    """Return the (negative) bits that pieces which are rarely seen in `tokens` of training add to an embedding."""
    if tensor_class(role) != "embed" or scale_rule(how, cfg.quant) == "std":
        return ExcessBits(0.0, 0.0)
    share = min(1.0, max(0.0, 3 * (RARELY * cfg.model.vocab_size / max(tokens, 1.0) - 1)))
    return ExcessBits(RARE_ROWS.bits * share, RARE_ROWS.sd * share)


def tuned_scales_excess(how: TensorQuant, quant: QuantConfig, columns: int) -> ExcessBits:
    """Return what tuned scales add in bits a weight where rows of `columns` weights have one scale together before."""
    tuned = quant.tune.steps > 0 and how.clip == "matrix_std"
    return ExcessBits(TUNED_ROW.bits / columns, TUNED_ROW.sd / columns) if tuned else ExcessBits(0.0, 0.0)


def rounding_excess(role: str, how: TensorQuant, quant: QuantConfig, rows: int) -> ExcessBits:
    """Return what rounding by GPTQ or on a trellis and steps of columns add to the excess bits of a role.

    `rows` are those of one of its matrices, over which the step of a column is spread.
    """
    if how.rounding == "nearest":
        return ExcessBits(0.0, 0.0)
    is_embed = tensor_class(role) == "embed"
    if how.rounding == "trellis":
        added = TRELLIS_EMBED if is_embed else TRELLIS
    else:
        added = (GPTQ_EMBED if is_embed else GPTQ)[scale_rule(how, quant)]
    coarser = _coarser(how, quant, is_embed)
    if not how.columns:
        return ExcessBits(added.bits + coarser.bits, math.hypot(added.sd, coarser.sd))
    of_columns = COLUMNS_EMBED if is_embed else ExcessBits(0.0, 0.0)
    bits = added.bits + coarser.bits + of_columns.bits + COLUMN_BITS / max(rows, 1)
    return ExcessBits(bits, math.hypot(added.sd, coarser.sd, of_columns.sd))


def _coarser(how: TensorQuant, quant: QuantConfig, is_embed: bool) -> ExcessBits:
    """Return what steps coarser than the normal one, in deviations of the weights, add; finer ones take off."""
    if scale_rule(how, quant) != "std":
        return ExcessBits(0.0, 0.0)
    normal_step, coarser = (NORMAL_STEP_EMBED, COARSER_EMBED) if is_embed else (NORMAL_STEP, COARSER)
    log_factor = math.log(how.clip_k / QMAX[how.format] / normal_step)
    bits, sd = coarser["trellis" if how.rounding == "trellis" else "gptq"]
    return ExcessBits(bits * log_factor, sd * abs(log_factor))
