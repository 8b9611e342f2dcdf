"""Shipped priors of excess bits, for predictions without finished runs.

They are least-squares fits with a small ridge over small runs (`scripts/bench_plan.py --fit`, docs/benchmarks.md), one
for each scale rule, kind of codec and kind of matrix. A standard deviation is never below 0.02, because residuals of a
few runs underestimate those of new runs. For the two matrices of an untied head, which eight runs had, the least is
0.04.
"""

from __future__ import annotations

import math

from golf.artifact.quant.policy import tensor_class
from golf.plan.excess_bits import ExcessBits, Prior
from golf.settings.config import Config, QuantConfig, TensorQuant, scale_floor

# (scale rule, kind of codec) → kind of matrix → bits, slopes over log path, log batch, log columns / rows, sd
PRIORS: dict[tuple[str, str], dict[str, Prior]] = {
    ("std", "context"): {
        "tok_emb": Prior(-0.644, 0.075, 0.057, 0.007, sd=0.032),
        "c_q": Prior(-0.005, -0.004, -0.004, 0.0, sd=0.02),
        "c_k": Prior(-0.038, -0.026, 0.008, -0.0, sd=0.029),
        "c_v": Prior(-0.066, -0.036, -0.002, -0.0, sd=0.044),
        "proj": Prior(-0.001, -0.003, -0.013, -0.092, sd=0.02),
        "fc": Prior(-0.036, 0.014, -0.005, -0.051, sd=0.02),
        "table": Prior(-0.243, 0.075, 0.0, -0.046, sd=0.03),
        "untied tok_emb": Prior(-0.306, 0.053, -0.019, -0.003, sd=0.04),
        "lm_head": Prior(-0.966, 0.171, 0.037, 0.011, sd=0.04),
    },
    ("max", "context"): {
        "tok_emb": Prior(-0.652, 0.06, 0.002, 0.02, sd=0.058, noise=0.02),
        "c_q": Prior(-0.054, -0.02, 0.002, 0.0, sd=0.04, noise=0.02),
        "c_k": Prior(-0.14, -0.082, 0.048, -0.0, sd=0.087, noise=0.02),
        "c_v": Prior(-0.198, -0.11, 0.014, -0.0, sd=0.122, noise=0.02),
        "proj": Prior(-0.019, -0.004, -0.019, -0.297, sd=0.04, noise=0.02),
        "fc": Prior(0.12, -0.052, -0.004, 0.156, sd=0.051, noise=0.02),
        "table": Prior(0.137, 0.039, 0.0, 0.036, sd=0.04, noise=0.02),
        "untied tok_emb": Prior(-0.051, -0.014, -0.025, -0.007, sd=0.05, noise=0.02),
        "lm_head": Prior(-1.182, 0.024, 0.145, 0.028, sd=0.05, noise=0.02),
    },
    ("std", "bytes"): {  # zstd 22
        "tok_emb": Prior(-0.378, 0.026, 0.064, 0.009, sd=0.052),
        "c_q": Prior(-0.002, -0.0, 0.01, 0.0, sd=0.022),
        "c_k": Prior(0.01, 0.013, 0.005, 0.0, sd=0.031),
        "c_v": Prior(-0.004, 0.016, -0.011, -0.0, sd=0.029),
        "proj": Prior(-0.021, 0.0, -0.007, 0.016, sd=0.02),
        "fc": Prior(-0.032, 0.026, -0.011, -0.033, sd=0.021),
        "table": Prior(0.04, -0.0, 0.0, 0.006, sd=0.1),
        "untied tok_emb": Prior(-0.003, -0.003, -0.007, 0.013, sd=0.04),
        "lm_head": Prior(-0.959, 0.053, 0.036, -0.01, sd=0.04),
    },
    ("max", "bytes"): {  # zlib 9
        "tok_emb": Prior(0.047, -0.067, -0.061, 0.042, sd=0.08, noise=0.02),
        "c_q": Prior(-0.052, -0.001, -0.002, 0.0, sd=0.04, noise=0.02),
        "c_k": Prior(-0.104, -0.027, 0.031, -0.0, sd=0.068, noise=0.02),
        "c_v": Prior(-0.118, -0.043, 0.025, -0.0, sd=0.1, noise=0.02),
        "proj": Prior(-0.019, -0.009, 0.001, -0.148, sd=0.04, noise=0.02),
        "fc": Prior(0.112, -0.064, 0.012, 0.104, sd=0.053, noise=0.02),
        "table": Prior(0.329, -0.0, 0.0, 0.046, sd=0.1, noise=0.02),
        "untied tok_emb": Prior(0.289, -0.077, -0.006, -0.013, sd=0.05, noise=0.02),
        "lm_head": Prior(-1.414, -0.02, 0.093, 0.004, sd=0.05, noise=0.02),
    },
    ("floor", "context"): {
        "tok_emb": Prior(-0.737, 0.063, 0.095, 0.0, sd=0.045),
        "c_q": Prior(0.008, -0.006, 0.003, 0.0, sd=0.02),
        "c_k": Prior(-0.015, -0.01, 0.001, -0.0, sd=0.046),
        "c_v": Prior(-0.065, -0.024, -0.032, -0.0, sd=0.054),
        "proj": Prior(-0.005, -0.009, -0.007, -0.066, sd=0.02),
        "fc": Prior(-0.039, -0.013, -0.02, 0.0, sd=0.031),
        "untied tok_emb": Prior(-0.051, -0.014, -0.024, -0.007, sd=0.05),
        "lm_head": Prior(-1.278, 0.103, 0.08, 0.024, sd=0.05),
    },
    ("floor", "bytes"): {  # zlib 9
        "tok_emb": Prior(-0.195, 0.007, 0.051, 0.0, sd=0.112),
        "c_q": Prior(0.016, -0.011, 0.005, 0.0, sd=0.02),
        "c_k": Prior(0.009, -0.009, 0.003, 0.0, sd=0.02),
        "c_v": Prior(-0.017, -0.012, -0.013, -0.0, sd=0.02),
        "proj": Prior(0.003, -0.006, -0.001, 0.008, sd=0.02),
        "fc": Prior(-0.002, 0.011, -0.006, 0.0, sd=0.027),
        "untied tok_emb": Prior(0.29, -0.076, -0.01, -0.01, sd=0.05),
        "lm_head": Prior(-1.4, -0.019, 0.053, 0.017, sd=0.05),
    },
}
UNKNOWN = {"std": Prior(0.0, sd=0.06), "max": Prior(0.0, sd=0.1, noise=0.02), "floor": Prior(0.0, sd=0.1, noise=0.02)}
# Bits a weight that GPTQ adds: its corrections widen the distribution of codes and make columns less alike.
GPTQ = {"std": ExcessBits(0.045, 0.017), "max": ExcessBits(0.002, 0.005), "floor": ExcessBits(0.01, 0.01)}
GPTQ_EMBED = {**GPTQ, "std": ExcessBits(0.086, 0.03)}
# The same for a trellis, whose codes are split into two sets with statistics of their own (docs/benchmarks.md).
TRELLIS, TRELLIS_EMBED = ExcessBits(0.013, 0.01), ExcessBits(0.064, 0.02)
# What one step for a whole embedding takes off: its rows differ in size, and rare tokens get short codes.
ONE_STEP_EMBED = ExcessBits(-0.27, 0.07)
COLUMN_BITS = 3.3  # bits of a column's step
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
    kind = matrix_kind(role, cfg.model.tie_embeddings)
    found = PRIORS.get((rule, codec), {}).get(kind, UNKNOWN[rule])
    if how.clip == "matrix_std" and codec == "context" and tensor_class(role) == "embed":
        sd = math.hypot(found.sd, ONE_STEP_EMBED.sd)
        return found._replace(bits=found.bits + ONE_STEP_EMBED.bits, sd=sd)
    return found


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
    if not how.columns:
        return added
    of_columns = COLUMNS_EMBED if is_embed else ExcessBits(0.0, 0.0)
    bits = added.bits + of_columns.bits + COLUMN_BITS / max(rows, 1)
    return ExcessBits(bits, math.hypot(added.sd, of_columns.sd))
