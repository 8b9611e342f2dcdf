"""The settings of quantization and of the artifact's coding, and values derived from them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from golf.settings.fields import among, later, number, one_of, within

TENSOR_CLASSES = ("embed", "attn", "mlp", "other")  # fields of QuantConfig, one for each class of tensors
INTEGER_FORMATS = ("int8", "int7", "int6", "int5", "int4")
TENSOR_FORMATS = (*INTEGER_FORMATS, "ternary", "fp16", "fp32")
SCALE_FLOORS = ("one_over_qmax", "eps")
BY_NAME = ("format", "clip", "clip_quantile", "clip_k", "scale_floor", "rounding")  # settings that `by_name` takes


@dataclass
class TensorQuant:
    """The stored form of a class of tensors: symmetric integer codes with a scale per row, or floats."""

    format: str = one_of(*TENSOR_FORMATS)  # number format of the codes or floats, or of a technique that gives one
    # magnitude of the largest code in a row; quantile: a quantile of |w| | std: k standard deviations of the row |
    # absmean: the mean of |w| | search: the best of several quantiles | matrix_std: k deviations of the whole matrix
    clip: str = one_of("quantile", "std", "absmean", "search", "matrix_std")
    clip_quantile: float = number(0.9999984, above=0, at_most=1)  # clip=quantile: quantile of |w|; 1 is the maximum
    clip_k: float = number(12.85, above=0)  # clip=std, matrix_std: clip in standard deviations
    # clip=search: quantiles of |w| to choose from for each row, by the least squared error of the weights, or of the
    # layer's output with rounding=gptq
    clip_search: list[float] = field(
        default_factory=lambda: [0.999, 0.9995, 0.9999, 0.99999, 1.0], metadata=within(above=0, at_most=1)
    )
    scale_floor: str | None = one_of(None, *SCALE_FLOORS)  # lower bound of a row's scale; null = quant.scale_floor
    rotation: str = one_of("none", "hadamard")  # orthogonal transform of the columns before coding
    # rounding to codes; gptq: for matrices with known inputs, see quant.gptq; trellis: the same with quant.trellis
    rounding: str = one_of("nearest", "gptq", "trellis")
    # exponent of the steps of single columns over the Cholesky diagonal of the inputs' Hessian; 0 = one step a row
    columns: float = later(number(0.0, at_least=0, at_most=1))
    # rounding=gptq: neighbouring columns of each matrix that get half the step, those whose inputs and weights are the
    # largest; 0 = none
    finer_columns: int = later(number(0, at_least=0))
    # rounding=gptq: share λ by which a row's clip follows its weight under the Hessian's diagonal; 0 = not at all
    clip_importance: float = later(number(0.0, at_least=0, below=1))
    # rounding=nearest: number of neighbouring weights in a row that share a scale; 0 = the whole row. Rows whose length
    # is no multiple of it have one scale
    group_size: int = later(number(0, at_least=0))


@dataclass
class GPTQConfig:
    """Settings of GPTQ (arXiv 2210.17323), for classes of tensors with `rounding=gptq`."""

    # damping factors to try, relative to the mean diagonal of the Hessian; each row keeps the best one
    damping: list[float] = field(default_factory=lambda: [0.01, 0.0201, 0.002], metadata=within(at_least=0, at_most=1))
    # inputs that were always zero, in the mean diagonal that damping is relative to; left_out: not counted | one:
    # counted as one, as in the public scripts | both: both means are tried
    unused_inputs: str = later(one_of("both", "left_out", "one"))
    # rounding in the order of the forward pass, with targets refitted to the inputs from the layers rounded before
    # (GPTAQ, arXiv 2504.02692); under quant.fit=cap these are rounded with the preset's own steps
    drift: bool = later(False)


@dataclass
class TrellisConfig:
    """Settings of trellis-coded rounding, for classes of tensors with `rounding=trellis`."""

    # price of a bit in squared errors, relative to the squared step; 0 = least error
    bit_price: float = later(number(0.0, at_least=0))


@dataclass
class CalibrationConfig:
    """The source and amount of the text for GPTQ's Hessians."""

    # text; train: training text, within the training time | self_generated: the model's, within the evaluation time
    source: str = one_of("train", "self_generated")
    # source=train; batches: as in training | windows: shuffled rows of data.train_seq_len tokens, across documents
    text: str = later(one_of("batches", "windows"))
    tokens: int = number(1_048_576, at_least=1)  # least number of tokens over all ranks
    reserve_seconds: float = number(10.0, at_least=0)  # source=train: training time set aside for calibration


@dataclass
class LQERConfig:
    """Low-rank factors that correct the rounding error of matrices (LQER, arXiv 2402.02446)."""

    rank: int = number(0, at_least=0)  # rank of the factors; 0 = no correction
    # number of matrices below int8 to correct, those whose error falls most; null = all
    top: int | None = number(None, at_least=1)
    format: str = one_of(*INTEGER_FORMATS)  # number format of the factors
    # scales of the factors; row: one a row | asymmetric: A in two bits with one scale, B in four bits with a scale for
    # every `group` values, as in record 2026-04-27_SP8192_LQER; matrices whose columns do not allow it keep rows
    factors: str = later(one_of("row", "asymmetric"))
    group: int = later(number(64, at_least=1))  # factors=asymmetric: values of B that share a scale
    # squared error that the factors lower most and by which `top` chooses; output: that of the layer's output, as far
    # as its inputs are known | weights: that of the weights
    error: str = later(one_of("output", "weights"))


@dataclass
class SensitiveConfig:
    """The format int6 for the matrices with the largest trace of their inputs' Hessian."""

    top: int = later(number(0, at_least=0))  # number of matrices below int8 that get it; 0 = none


@dataclass
class PruneConfig:
    """Codes ±1 set to zero after rounding, in formats below int8, in ascending order of the squared error they add.

    `weights` sets the smallest weights to zero before rounding instead.
    """

    fraction: float = number(0.0, at_least=0, at_most=1)  # share of the codes ±1 to zero
    to_fit: bool = False  # zero the least number with which artifact and code fit under the cap, in place of `fraction`
    # share of every large matrix's weights that is zeroed before rounding, the smallest first
    weights: float = later(number(0.0, at_least=0, below=1))


@dataclass
class TuneConfig:
    """Training of what the artifact holds in floats, after rounding and with the codes fixed."""

    steps: int = later(number(0, at_least=0))  # Adam steps on scales and on tensors stored as floats; 0 = off
    # loss that is lowered; kl: divergence from the trained model | loss: the nats of the next token
    loss: str = later(one_of("kl", "loss"))
    batch_tokens: int = later(number(2048, at_least=1))  # tokens of a step over all ranks: at least a row a micro-batch
    # training time set aside for rounding with retraining or tuning
    reserve_seconds: float = later(number(30.0, at_least=0))


@dataclass
class RetrainConfig:
    """Training between the stages of rounding, of all that is still in floats (incremental network quantization).

    It takes `quant.tune.batch_tokens` tokens a step, and must end with tuning within `quant.tune.reserve_seconds`.
    """

    steps: int = later(number(0, at_least=0))  # Adam steps after each stage of rounding; 0 = off
    # matrices that are rounded together; stage: those that share an input | block: those of a layer
    by: str = later(one_of("stage", "block"))
    # learning rate relative to the root mean square of a matrix; other floats take 0.3 of it, relative to their mean
    rate: float = later(number(0.005, above=0))


@dataclass
class QuantConfig:
    """Number formats, rounding, pruning and byte coding of the artifact."""

    name: str = "int8"
    tag: str = "int8"  # name of the format in log lines, as public logs spell it
    embed: TensorQuant = field(default_factory=TensorQuant)  # tok_emb and lm_head
    attn: TensorQuant = field(default_factory=TensorQuant)  # matrices of attention
    mlp: TensorQuant = field(default_factory=TensorQuant)  # matrices of the MLPs
    other: TensorQuant = field(default_factory=TensorQuant)  # tensors of no other class
    # pattern of tensor names → number format, or a dict of it and clip, clip_quantile, clip_k, scale_floor or rounding;
    # takes precedence over all other rules but quant.sensitive; on the command line:
    # quant.by_name={*attn_gate*:{format:int8,clip_k:4}}
    by_name: dict[str, Any] = field(default_factory=dict, metadata=among(*TENSOR_FORMATS))
    # largest number of elements of a float tensor that is stored as fp16 instead (control tensors: fp32)
    small_numel: int = number(65_536, at_least=0)
    control_format: str = later(one_of("fp32", "fp16"))  # number format of small control tensors: gains and scales
    scale_floor: str = one_of(*SCALE_FLOORS)  # lower bound of a row's scale; one_over_qmax: 1/qmax | eps: nearly none
    # scales are rounded to float16 after or before the codes; below_int8: before those of formats below int8 alone
    scale_rounding: str = one_of("after", "before", "below_int8")
    # choice among several clips and dampings; row: one for every row, by the error of the layer's output where its
    # inputs are known | matrix: one for all rows, by the squared error of the weights, as in the public scripts
    chosen_by: str = later(one_of("row", "matrix"))
    # a in clips of s^-a for matrices below int8 but the embedding, with s the mean square of the inputs times the mean
    # variance of a row; their geometric mean stays, and they end at 6 and 24 deviations; 0 = clip_k for all
    clip_sensitivity: float = later(number(0.0, at_least=0, below=1))
    # q in steps of (d / n)^(-q / 2) for matrices of n weights whose rounding alone costs the divergence d, measured on
    # calibration text; within 0.4 and 4 times the steps of clip_k, whose mean logarithm stays; 0 = those for all;
    # recommended: 0.75
    step_sensitivity: float = later(number(0.0, at_least=0, at_most=1))
    gptq: GPTQConfig = field(default_factory=GPTQConfig)
    trellis: TrellisConfig = later(field(default_factory=TrellisConfig))
    calibration: CalibrationConfig = field(default_factory=CalibrationConfig)
    lqer: LQERConfig = field(default_factory=LQERConfig)
    sensitive: SensitiveConfig = later(field(default_factory=SensitiveConfig))
    prune: PruneConfig = field(default_factory=PruneConfig)
    retrain: RetrainConfig = later(field(default_factory=RetrainConfig))
    tune: TuneConfig = later(field(default_factory=TuneConfig))
    # factor on all steps; off: none | cap: the one with which artifact and script fill the cap, for clips in deviations
    fit: str = later(one_of("off", "cap"))
    # compressor of the artifact; context is golf's own entropy coder; brotli and context need the extra golf[codec]
    codec: str = one_of("zlib", "zstd", "lzma", "brotli", "context")
    codec_level: int = 9  # compression level of the codec; unused with context
    # reorderings of the bytes before compression, see artifact/codec/layouts.py; none with context
    layout: list[str] = field(default_factory=list, metadata=among("pack_bits", "by_role", "sort_rows", "byte_planes"))


def tensor_classes(quant: QuantConfig) -> dict[str, TensorQuant]:
    """Return the settings of every class of tensors by the class's name."""
    return {name: getattr(quant, name) for name in TENSOR_CLASSES}


def named_settings(quant: QuantConfig) -> Iterator[tuple[str, TensorQuant]]:
    """Yield every pattern of `quant.by_name` with the settings that it makes of those of each class."""
    for pattern in quant.by_name:
        for how in tensor_classes(quant).values():
            yield pattern, as_named(how, quant.by_name[pattern])


def format_keys(quant: QuantConfig) -> dict[str, str]:
    """Return the number formats that classes and patterns name, by the full keys of the settings."""
    classes = {f"quant.{name}.format": how.format for name, how in tensor_classes(quant).items()}
    rules = ((f"quant.by_name.{pattern}", rule) for pattern, rule in quant.by_name.items())
    return classes | {key: rule.get("format", "") if isinstance(rule, dict) else rule for key, rule in rules}


def as_named(how: TensorQuant, rule: Any) -> TensorQuant:
    """Return `how` with what a value of `quant.by_name` sets."""
    return dataclasses.replace(how, **(rule if isinstance(rule, dict) else {"format": rule}))


def scale_floor(how: TensorQuant, quant: QuantConfig) -> str:
    """Return the floor of the scales of a class of tensors: its own, else the common one."""
    return how.scale_floor or quant.scale_floor


def uses_gptq(quant: QuantConfig) -> bool:
    """Tell whether GPTQ, plain or on a trellis, rounds any class of tensors, so that calibration is needed."""
    # One expression, as an export can only see through those.
    return "gptq" in (
        quant.embed.rounding,
        quant.attn.rounding,
        quant.mlp.rounding,
        quant.other.rounding,
    ) or "trellis" in (quant.embed.rounding, quant.attn.rounding, quant.mlp.rounding, quant.other.rounding)


def trains_stored(quant: QuantConfig) -> bool:
    """Tell whether training follows the calibration: between the stages of rounding or after it."""
    return quant.retrain.steps > 0 or quant.tune.steps > 0


def uses_trellis(quant: QuantConfig) -> bool:
    """Tell whether any class of tensors is rounded on a trellis."""
    return "trellis" in (quant.embed.rounding, quant.attn.rounding, quant.mlp.rounding, quant.other.rounding)


def uses_columns(quant: QuantConfig) -> bool:
    """Tell whether the columns of any class of tensors have steps of their own."""
    return (
        quant.embed.columns > 0 or quant.attn.columns > 0 or quant.mlp.columns > 0 or quant.other.columns > 0
    ) or finer_columns(quant)


def finer_columns(q: QuantConfig) -> bool:
    """Tell whether some columns of any class of tensors have half the step."""
    return q.embed.finer_columns > 0 or q.attn.finer_columns > 0 or q.mlp.finer_columns > 0 or q.other.finer_columns > 0


def uses_groups(q: QuantConfig) -> bool:
    """Tell whether weights of any class of tensors share scales in groups."""
    return q.embed.group_size > 0 or q.attn.group_size > 0 or q.mlp.group_size > 0 or q.other.group_size > 0


def packs_bits(quant: QuantConfig) -> bool:
    """Tell whether codes are stored without gaps."""
    return "pack_bits" in quant.layout


def sorts_rows(quant: QuantConfig) -> bool:
    """Tell whether rows of codes are stored by their magnitude."""
    return "sort_rows" in quant.layout


def sorts_roles(quant: QuantConfig) -> bool:
    """Tell whether tensors of one role lie side by side in the file."""
    return "by_role" in quant.layout


def splits_planes(quant: QuantConfig) -> bool:
    """Tell whether values are stored by byte planes, as all is that stands beside golf's entropy coder."""
    return quant.codec == "context" or "byte_planes" in quant.layout


def rotates(quant: QuantConfig) -> bool:
    """Tell whether any class of tensors is stored rotated."""
    return "hadamard" in (quant.embed.rotation, quant.attn.rotation, quant.mlp.rotation, quant.other.rotation)
