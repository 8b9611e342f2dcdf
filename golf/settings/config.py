"""The typed configuration: every setting of a run, its unit, and its choices or range.

This file imports ground files, its neighbours `fields` and `*_config`, and no Hydra. Values live in conf/; the
defaults here are those of the public baseline (`train_gpt.py` of openai/parameter-golf). `hardware.settle` replaces
every `auto` before anything else reads it; `consistency` checks what no field can check by itself.
"""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from golf.challenge import CAP_BYTES, EVAL_SECONDS, GRACE_SECONDS, TRAIN_SECONDS
from golf.errors import GolfError
from golf.idea_folders import refuse_missing
from golf.registry import CHANGES_LOSS, CHANGES_ORDER, CHANGES_SCORE, CHANGES_STEP, technique_types
from golf.settings.fields import CONSTANTS, later, number, one_of, written_values
from golf.settings.jobs_config import ClusterConfig, LaunchConfig, SweepConfig, TrackConfig
from golf.settings.quant_config import TENSOR_CLASSES as TENSOR_CLASSES
from golf.settings.quant_config import GPTQConfig as GPTQConfig
from golf.settings.quant_config import LQERConfig as LQERConfig
from golf.settings.quant_config import PruneConfig as PruneConfig
from golf.settings.quant_config import QuantConfig, trains_stored, uses_gptq
from golf.settings.quant_config import RetrainConfig as RetrainConfig
from golf.settings.quant_config import SensitiveConfig as SensitiveConfig
from golf.settings.quant_config import TensorQuant as TensorQuant
from golf.settings.quant_config import TrellisConfig as TrellisConfig
from golf.settings.quant_config import TuneConfig as TuneConfig
from golf.settings.quant_config import as_named as as_named
from golf.settings.quant_config import named_settings as named_settings
from golf.settings.quant_config import packs_bits as packs_bits
from golf.settings.quant_config import rotates as rotates
from golf.settings.quant_config import scale_floor as scale_floor
from golf.settings.quant_config import sorts_roles as sorts_roles
from golf.settings.quant_config import sorts_rows as sorts_rows
from golf.settings.quant_config import splits_planes as splits_planes
from golf.settings.quant_config import tensor_classes as tensor_classes
from golf.settings.quant_config import uses_columns as uses_columns
from golf.settings.quant_config import uses_groups as uses_groups
from golf.settings.quant_config import uses_trellis as uses_trellis
from golf.settings.scoring_config import EvalConfig


@dataclass
class ModelConfig:
    """The shape of the network, its arithmetic and its starting weights."""

    name: str = "9l"
    vocab_size: int = number(1024, at_least=1)  # tokens of the vocabulary; conf/model takes it from data.vocab_size
    num_layers: int = number(9, at_least=1, at_most=1000)  # transformer blocks
    model_dim: int = number(512, at_least=1, at_most=1_000_000)  # width of the residual stream in channels
    num_heads: int = number(8, at_least=1)  # query heads
    num_kv_heads: int = number(4, at_least=1)  # key-value heads; a divisor of num_heads
    mlp_mult: float = number(2.0, above=0)  # hidden width of the MLP as a multiple of model_dim
    mlp_hidden: int | None = None  # hidden width of the MLP in channels; null = by mlp_mult
    tie_embeddings: bool = True  # one matrix for the embedding and the output head
    tied_embed_init_std: float = number(0.005, at_least=0)  # standard deviation of the tied embedding at the start
    rope_base: float = number(10_000.0, above=0)  # base of the rotary embedding's frequencies
    logit_softcap: float = number(30.0, above=0)  # bound c of the logits: c·tanh(logit / c)
    qk_gain_init: float = 1.5  # starting value of each head's learned gain on its queries
    unet_skips: bool = True  # U-net skips: outputs of the first half of the layers, added in the second half
    attention: str = one_of("auto", "sdpa", "varlen", "cudnn", "fa2", "fa3")  # kernel of attention
    compute_dtype: str = one_of("auto", "bf16", "fp32")  # dtype of activations and embedding; matrices are kept in fp32
    # attention; true: stops at the end of a document, where rotary positions restart | false: sees the whole row
    within_documents: bool = later(False)
    init_from: str | None = None  # file of starting weights, .safetensors or weights-only .pt; null = initialized here


@dataclass
class OptimConfig:
    """Learning rates, momentum and decay of Muon (matrices of the blocks) and Adam (everything else)."""

    # form of Muon; sharded: over gradients that DDP averages | parallel: over parameter banks, averaging by itself
    muon: str = one_of("sharded", "parallel")
    matrix_lr: float = number(0.04, at_least=0)  # learning rate of Muon, on the matrices of the blocks
    scalar_lr: float = number(0.04, at_least=0)  # learning rate of Adam on vectors, gains and scales
    tied_embed_lr: float = number(0.05, at_least=0)  # learning rate of Adam on the tied embedding
    embed_lr: float = number(0.6, at_least=0)  # learning rate of Adam on the embedding when the head is untied
    head_lr: float = number(0.008, at_least=0)  # learning rate of Adam on the untied head
    muon_momentum: float = number(0.95, at_least=0, at_most=1)  # momentum of Muon after its warm-up
    muon_momentum_warmup_start: float = number(0.85, at_least=0, at_most=1)  # momentum of Muon at the first step
    muon_momentum_warmup_steps: int = number(500, at_least=0)  # steps of the linear rise between the two; 0 = none
    muon_backend_steps: int = number(5, at_least=0)  # Newton-Schulz iterations
    muon_dtype: str = one_of("auto", "bf16", "fp32")  # dtype of Newton-Schulz and of its exchange between ranks
    muon_wd: float = number(0.0, at_least=0)  # decoupled weight decay of Muon, per unit of learning rate
    adam_wd: float = number(0.0, at_least=0)  # decoupled weight decay of Adam, per unit of learning rate
    embed_wd: float | None = number(None, at_least=0)  # weight decay of the embedding; null = adam_wd
    head_wd: float | None = number(None, at_least=0)  # weight decay of the untied head; null = adam_wd
    beta1: float = number(0.9, at_least=0, below=1)  # decay of Adam's first moment
    beta2: float = number(0.95, at_least=0, below=1)  # decay of Adam's second moment
    adam_eps: float = number(1e-8, at_least=0)  # epsilon in Adam's denominator
    # largest gradient norm: that of the mean over the ranks, or clip_before_reduction; 0 = no clipping
    grad_clip_norm: float = number(0.0, at_least=0)
    # muon=parallel: each rank clips by the norm of its own gradients, as in the public scripts with parameter banks
    clip_before_reduction: bool = later(False)
    muon_row_normalize: bool = later(False)  # MuonEq-R: unit norm for every row of the update before Newton-Schulz
    muon_row_eps: float = later(number(0.0, at_least=0))  # of muon_row_normalize: added to the mean square of a row
    # coefficients of Newton-Schulz; quintic: one triple for all iterations | polar_express: one triple for each of five
    muon_coefficients: str = later(one_of("quintic", "polar_express"))
    muon_momentum_dtype: str = later(one_of("fp32", "bf16"))  # dtype of Muon's momentum between steps
    # dtype of Adam's moments between steps; parameter: that of the parameter, bf16 for an embedding in bf16
    adam_moment_dtype: str = later(one_of("parameter", "fp32", "bf16"))


@dataclass
class StageConfig:
    """A stretch of the training with sequences and batches of its own."""

    until: float = number(1.0, above=0, at_most=1)  # finished share of the run at which the stage ends
    seq_len: int | None = number(None, at_least=1)  # tokens per training sequence; null = data.train_seq_len
    batch_tokens: int | None = number(None, at_least=1)  # tokens per optimizer step; null = data.train_batch_tokens


@dataclass
class ScheduleConfig:
    """The learning rate over the steps, and the end of training by steps."""

    iterations: int = number(20_000, at_least=1)  # most steps; budget.train_seconds usually ends the run first
    warmdown_iters: int = number(1200, at_least=0)  # steps of the linear decay, at the measured pace; 0 = no decay
    # share of the training budget that decays, in place of warmdown_iters; 0 = by warmdown_iters
    warmdown_fraction: float = number(0.0, at_least=0, at_most=1)
    min_lr: float = number(0.0, at_least=0, at_most=1)  # lowest multiplier of the learning rates
    # share of the run after which Muon's weight decay begins to fall
    muon_wd_taper_start: float = later(number(0.7, at_least=0, below=1))
    muon_wd_taper_final: float = later(number(1.0, at_least=0, at_most=1))  # factor on it at the end; 1 = no fall
    # factors on all weight decays at the shares of the run in weight_decay_shares, linear in between; [] = 1 throughout
    weight_decay_factors: list[float] = later(field(default_factory=list))
    weight_decay_shares: list[float] = later(field(default_factory=list))  # shares of the run, ascending
    warmup_steps: int = number(20, at_least=0)  # untimed steps that compile and fill caches; their updates are undone
    # stages in order, as [{until: 0.3, seq_len: 512, batch_tokens: 262144}, {}]: the finished share of the run at which
    # a stage ends, its tokens per sequence and per step; what a stage leaves out is that of `data`; [] = one stage
    stages: list[StageConfig] = later(field(default_factory=list))
    # steps of a linear rise of the learning rates after the first one of each stage but the first; 0 = none
    stage_warmup_steps: int = later(number(0, at_least=0))


@dataclass
class DataConfig:
    """The data set, its tokenizer, and the training batch."""

    name: str = "fineweb_sp1024"
    path: str = "data/datasets/fineweb10B_sp1024"  # folder of the shards
    train_files: str = "fineweb_train_*.bin"  # pattern of the training shards' names
    val_files: str = "fineweb_val_*.bin"  # pattern of the validation shards' names
    tokenizer_path: str = "data/tokenizers/fineweb_1024_bpe.model"  # SentencePiece model
    vocab_size: int = 1024  # tokens of the tokenizer's vocabulary
    # source of a data set that is built on first use: "pydocs", "pydocs_caseops"; null = it exists already
    built_from: str | None = None
    fingerprint: str | None = None  # hash that the data must have; null = any
    train_batch_tokens: int = number(524_288, at_least=1)  # tokens per optimizer step over all ranks
    train_seq_len: int = number(1024, at_least=1)  # tokens per training sequence
    micro_batches: int = number(8, at_least=1)  # equal parts of a step's batch, divided among the ranks
    loader: str = one_of("sequential", "coprime", "shuffled", "packed", "packed_shuffled")  # order of the training text
    loader_seed: int = number(1337, at_least=0)  # seed of the orders coprime, shuffled and packed_shuffled
    # bytes of the validation text; true: from the sidecars beside its shards | false: from the tokenizer's pieces
    byte_sidecar: bool = later(False)
    # what a token is; sentencepiece: a piece of data.tokenizer_path | bytes: a UTF-8 byte, without a tokenizer
    units: str = later(one_of("sentencepiece", "bytes"))
    # indices of the shards that loader=sequential reads first; the other shards follow in the order of their names
    shard_order: list[int] = field(default_factory=list)


@dataclass
class BudgetConfig:
    """The limits of a run."""

    train_seconds: float = number(TRAIN_SECONDS, at_least=0)  # training time; 0 = schedule.iterations ends the run
    eval_seconds: float = number(EVAL_SECONDS, at_least=0)  # evaluation time
    artifact_bytes: int = number(CAP_BYTES, at_least=0)  # model file and code together, in decimal bytes
    grace_seconds: float = number(GRACE_SECONDS, at_least=0)  # overrun of the training time that is still `ok`


@dataclass
class RulesConfig:
    """The rules by which runs are judged."""

    name: str = "house"
    # outcome of a run with a technique that has no effect; void: it ends as void | stop: it does not start
    failed_check: str = one_of("void", "stop")
    margin_nats: float = number(0.0, at_least=0)  # least improvement over the reference to be shown, in nats per token
    alpha: float = number(0.05, above=0, below=1)  # one-sided p of a verdict, Holm-corrected over the sweep's verdicts
    confidence: float = number(0.9, above=0, below=1)  # level of two-sided intervals; 1 - 2·alpha agrees with verdicts
    power: float = number(0.8, above=0, below=1)  # chance of finding a real difference, for the number of seeds needed
    # size of the code counted with the artifact; exact: the wrapped script itself | estimate: a fast prediction of it
    code_bytes: str = one_of("exact", "estimate")
    # what counts against budget.eval_seconds; scores: the seconds of every score | whole: all from the packed file on,
    # with unpacking it and compiling
    eval_clock: str = later(one_of("scores", "whole"))
    # the compressed program in the script that counts; raw: its bytes in a source in Latin-1 | base85: ASCII, a fifth
    # longer
    script_packing: str = later(one_of("raw", "base85"))
    quiet_clock: bool = False  # no sampling of the machine during training, whatever track.system_metrics says


@dataclass
class ScaleConfig:
    """The size of the experiment in proportion to the challenge's record runs."""

    name: str = "record"
    # expected steps / 13,780 of the record run; factor of `${steps:N}` in YAML
    step_ratio: float = number(1.0, above=0)
    # seconds of the clock / 600 of the record run; factor of `${seconds:N}` in YAML
    seconds_ratio: float = later(number(1.0, above=0))
    # learning rates / those of the public baseline; factor of `${rate:N}` in YAML
    rate_ratio: float = later(number(1.0, above=0))
    # share of the run in the public baseline's warm-down / that of the record run; factor of `${warmdown:N}` in YAML
    warmdown_ratio: float = later(number(1.0, above=0))
    small_tensor: int = 65_536  # quant.small_numel of the presets that set none of their own, in elements


@dataclass
class Config:
    """A whole experiment: a variant and a `seed`.

    No part of the variant are `launch`, `rules`, `sweep`, `cluster`, `track`, `drop`, `name`, `note`, `expect`, `tags`.
    """

    model: ModelConfig = field(default_factory=ModelConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    data: DataConfig = field(default_factory=DataConfig)
    quant: QuantConfig = field(default_factory=QuantConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    scale: ScaleConfig = field(default_factory=ScaleConfig)
    launch: LaunchConfig = field(default_factory=LaunchConfig)
    rules: RulesConfig = field(default_factory=RulesConfig)
    sweep: SweepConfig = field(default_factory=SweepConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    track: TrackConfig = field(default_factory=TrackConfig)
    tech: dict[str, Any] = field(default_factory=dict)  # selected techniques, name → settings; see training/techniques
    idea_code: dict[str, str] = later(field(default_factory=dict))  # hashes of the code of ideas among them, by name
    drop: list[str] = field(default_factory=list)  # names of what has been taken out of the experiment, see dropping.py
    seed: int = number(1337, at_least=0)  # seed of weights and techniques
    name: str = "run"  # name of the variant in folders and tables
    note: str = ""  # remark for people
    expect: str = later("")  # record or runs whose losses it should have, see `golf expect`; tables say how far it is
    tags: list[str] = later(field(default_factory=list))  # words that the board's runs are grouped and filtered by


def training_seconds(cfg: Config) -> float:
    """Return the training time in seconds: the budget less what other uses of its text reserve; 0 = no clock."""
    calibrates = uses_gptq(cfg.quant) and cfg.quant.calibration.source == "train"
    reserve = cfg.quant.calibration.reserve_seconds if calibrates else 0.0
    if trains_stored(cfg.quant):
        reserve += cfg.quant.tune.reserve_seconds
    # A script may get a budget that the reserve takes whole. This clock has run out, and 0 would be none.
    if reserve > 0.0 and reserve == cfg.budget.train_seconds:
        return -1.0
    return cfg.budget.train_seconds - reserve if cfg.budget.train_seconds else 0.0


def mlp_hidden(model: ModelConfig) -> int:
    """Return the width of the MLP's hidden layer in channels."""
    return model.mlp_hidden or int(model.mlp_mult * model.model_dim)


def eval_seq_len(cfg: Config) -> int:
    """Return the tokens per scored sequence."""
    return cfg.eval.seq_len or cfg.data.train_seq_len


class TTTRecipe(NamedTuple):
    """The settings of test-time training with no null left."""

    lr: float
    chunk_tokens: int
    batch_seqs: int
    seq_len: int
    lora_chunks: Sequence[Sequence[int]] = ()  # (most tokens of the longest document, tokens of its chunks)

    def chunk_for(self, targets: int) -> int:
        """Return the tokens of a chunk in a batch whose longest document has `targets` targets."""
        # A document has a token more than targets.
        return next((size for most, size in self.lora_chunks if targets < most), self.chunk_tokens)


def ttt_recipe(cfg: Config) -> TTTRecipe:
    """Return the settings of the chosen method, with the public recipe's value for every null.

    The recipe of sgd is that of PR #461 and #549. The recipe of lora is that of record 2026-03-17_LoRA_TTT, whose chunk
    of 256 tokens is a quarter of its window of 1024.
    """
    ttt, seq_len = cfg.eval.ttt, eval_seq_len(cfg)
    if ttt.method == "lora":
        seq_len = ttt.seq_len or seq_len
        recipe = TTTRecipe(0.01, max(seq_len // 4, 1), 64, seq_len, ttt.lora_chunks)
    else:
        recipe = TTTRecipe(0.002, 32_768, 32, seq_len)
    given = {key: getattr(ttt, key) for key in ("lr", "chunk_tokens", "batch_seqs")}
    return recipe._replace(**{key: value for key, value in given.items() if value is not None})


def world_size(cfg: Config) -> int:
    """Return the number of ranks on all machines together."""
    return cfg.launch.nproc * cfg.launch.nodes


def micro_batch_tokens(cfg: Config) -> int:
    """Return the tokens of one rank's micro-batch."""
    return cfg.data.train_batch_tokens // cfg.data.micro_batches


def missing_for_documents(cfg: Config, packed: bool) -> list[str]:
    """Return the overrides that are missing to keep documents apart, in rows of whole documents if `packed`."""
    within = packed or cfg.model.within_documents
    needed = {"model.within_documents=true": packed, "eval.documents=true": within}
    is_set = {"model.within_documents=true": cfg.model.within_documents, "eval.documents=true": cfg.eval.documents}
    missing = [override for override in needed if needed[override] and not is_set[override]]
    mixing = [t.name for t in techniques(cfg) if t.separates_documents() is False]
    return missing + [f"tech.{name}.mask_bos=true" for name in mixing if within or cfg.eval.documents]


def is_packed(cfg: Config) -> bool:
    """Tell whether a micro-batch is one row of whole documents."""
    return cfg.data.loader in ("packed", "packed_shuffled")


def grad_accum_steps(cfg: Config) -> int:
    """Return the micro-batches that each rank runs per optimizer step."""
    return cfg.data.micro_batches // world_size(cfg)


class Stage(NamedTuple):
    """A stage of the training with no null left."""

    until: float  # finished share of the run at which it ends
    seq_len: int
    batch_tokens: int  # of a step over all ranks


def has_stages(cfg: Config) -> bool:
    """Tell whether the length of sequences or the batch changes during the training."""
    return bool(cfg.schedule.stages)


def stages(cfg: Config) -> list[Stage]:
    """Return the stages of the training, at least one."""
    return [
        Stage(stage.until, stage.seq_len or cfg.data.train_seq_len, stage.batch_tokens or cfg.data.train_batch_tokens)
        for stage in cfg.schedule.stages or [StageConfig()]
    ]


def stage_shares(cfg: Config) -> list[tuple[float, Stage]]:
    """Return the stages with the share of the run that each takes."""
    ends = [stage.until for stage in stages(cfg)]
    if not training_seconds(cfg):
        # Step k stands at k / iterations, and the step at `until` is the stage's last.
        ends = [min(1.0, (math.floor(end * cfg.schedule.iterations) + 1) / cfg.schedule.iterations) for end in ends]
    return [(end - start, stage) for start, end, stage in zip([0.0, *ends], ends, stages(cfg), strict=False)]


def mean_of_steps(cfg: Config, values: Sequence[float]) -> float:
    """Return the mean over the steps of a run of what a step has in each stage, such as seconds or tokens."""
    shares = [share for share, _ in stage_shares(cfg)]
    if not training_seconds(cfg):
        return sum(share * value for share, value in zip(shares, values, strict=True))
    # Under a clock a stage of short steps has more of them.
    return 1 / sum(share / value for share, value in zip(shares, values, strict=True))


def mean_batch_tokens(cfg: Config) -> int:
    """Return the mean tokens of a step over the run."""
    if not has_stages(cfg):
        return cfg.data.train_batch_tokens
    return round(mean_of_steps(cfg, [stage.batch_tokens for stage in stages(cfg)]))


def mean_seq_len(cfg: Config) -> int:
    """Return the mean length of the sequences in tokens that a token of the training stands in."""
    if not has_stages(cfg):
        return cfg.data.train_seq_len
    # Under a clock the share of a stage is one of the tokens, nearly; otherwise it is one of the steps.
    tokens = [share * (1 if training_seconds(cfg) else stage.batch_tokens) for share, stage in stage_shares(cfg)]
    return round(sum(n * stage.seq_len for n, stage in zip(tokens, stages(cfg), strict=True)) / sum(tokens))


def techniques(cfg: Config) -> list[Any]:
    """Return the selected techniques in the order of application, whatever order they were named in."""
    return sorted(cfg.tech.values(), key=lambda technique: (technique.phase, technique.name))


def changes_steps(cfg: Config) -> bool:
    """Tell whether a technique is selected that changes the steps of the optimizer."""
    return any(technique.effect == CHANGES_STEP for technique in cfg.tech.values())


def changes_loss(cfg: Config) -> bool:
    """Tell whether a technique is selected that changes what training minimises."""
    return any(technique.effect == CHANGES_LOSS for technique in cfg.tech.values())


def changes_order(cfg: Config) -> bool:
    """Tell whether a technique is selected that puts the training text in order."""
    return any(technique.effect == CHANGES_ORDER for technique in cfg.tech.values())


def changes_score(cfg: Config) -> bool:
    """Tell whether a technique is selected whose predictor is mixed into the scores."""
    return any(technique.effect == CHANGES_SCORE for technique in cfg.tech.values())


def trains_apart(cfg: Config) -> bool:
    """Tell whether a technique is selected of which an artifact and its score know nothing."""
    return changes_steps(cfg) or changes_loss(cfg) or changes_order(cfg)


def has_formats(tech: Mapping[str, Any]) -> bool:
    """Tell whether a technique of `tech` gives a number format."""
    return any(technique.number_format() is not None for technique in tech.values())


def scored_config(cfg: Config) -> Config:
    """Return `cfg` without the techniques of which an artifact and its score know nothing."""
    apart = (CHANGES_STEP, CHANGES_LOSS, CHANGES_ORDER)
    return dataclasses.replace(cfg, tech={name: t for name, t in cfg.tech.items() if t.effect not in apart})


def to_dict(cfg: Config) -> dict[str, Any]:
    """Return `cfg` as the plain nested dict of config.json."""
    return written_values(cfg)


T = TypeVar("T")
# Settings that earlier versions wrote and that are in no variant's id.
GONE = {(SweepConfig, "test"), (SweepConfig, "prune"), (SweepConfig, "prune_at")}


def from_dict(kind: type[T], values: dict[str, Any]) -> T:
    """Invert `to_dict` for `Config` or one of its groups. Raises `GolfError` on unknown keys and wrong types."""
    constants = CONSTANTS.get(kind.__name__, {}).items()
    values = {key: value for key, value in values.items() if (kind, key) not in GONE and (key, value) not in constants}
    known = get_type_hints(kind)
    _refuse_unknown(kind.__name__, values, (f.name for f in dataclasses.fields(kind)))  # type: ignore[arg-type]
    settings: dict[str, Any] = {}
    for key, value in values.items():
        wanted = known[key]
        if kind is Config and key == "tech":
            settings[key] = techniques_from_dict(value, values.get("idea_code", {}))
        elif dataclasses.is_dataclass(wanted) and isinstance(value, dict):
            settings[key] = from_dict(wanted, value)  # type: ignore[arg-type]
        elif wanted == list[StageConfig] and isinstance(value, list):
            settings[key] = [from_dict(StageConfig, stage) for stage in value]
        elif _is_of(value, wanted):
            settings[key] = value
        else:
            raise GolfError(f"{kind.__name__}.{key} is {value!r}, which is not of type {wanted}.")
    return kind(**settings)


def techniques_from_dict(values: dict[str, dict[str, Any]], digests: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the settings objects of techniques by name, from their part of `to_dict`.

    `digests` are hashes of the code of those that are ideas. Raises `GolfError` for a technique that is not here.
    """
    # Without techniques there is no need for the registry, which imports torch.
    if not values:
        return {}
    for name in values:
        if name not in technique_types():
            refuse_missing(name, (digests or {}).get(name, ""))
    return {name: from_dict(technique_types()[name], settings) for name, settings in values.items()}


def _refuse_unknown(what: str, values: Iterable[str], known: Iterable[str]) -> None:
    if unknown := sorted(set(values) - set(known)):
        raise GolfError(f"{what} does not know {', '.join(unknown)}: it was written by another version of golf.")


def _is_of(value: Any, wanted: Any) -> bool:
    if get_origin(wanted) is list:
        return isinstance(value, list) and all(_is_of(item, get_args(wanted)[0]) for item in value)
    if wanted is Any:
        return True
    if get_origin(wanted) is dict:
        return isinstance(value, dict) and all(_is_of(item, get_args(wanted)[1]) for item in value.values())
    if isinstance(wanted, types.UnionType):
        return any(_is_of(value, option) for option in get_args(wanted))
    # For Python true is an integer, but it is no number of layers.
    if isinstance(value, bool):
        return wanted is bool
    # A whole number is a value of a setting that takes fractions.
    return isinstance(value, wanted) or (wanted is float and isinstance(value, int))
