"""The typed configuration: every setting of a run and its unit. `consistency` checks whether they fit together.

This is the ground everything stands on: it imports nothing but the error type, and no Hydra. Values live in conf/;
the defaults here are those of the public baseline (techniques: openai/parameter-golf `train_gpt.py`). A field that
says `auto` is filled in by `golf.settings.hardware.settle` from the machine found, before anything else sees it.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from golf.challenge import CAP_BYTES, EVAL_SECONDS, GRACE_SECONDS, TRAIN_SECONDS
from golf.errors import GolfError
from golf.registry import technique_types

TENSOR_CLASSES = ("embed", "attn", "mlp", "other")  # the fields of QuantConfig that say how each is stored


@dataclass
class ModelConfig:
    name: str = "9l"
    vocab_size: int = 1024
    num_layers: int = 9
    model_dim: int = 512
    num_heads: int = 8
    num_kv_heads: int = 4
    mlp_mult: float = 2.0  # hidden width as a multiple of model_dim
    mlp_hidden: int | None = None  # absolute hidden width; wins over mlp_mult
    tie_embeddings: bool = True
    tied_embed_init_std: float = 0.005
    rope_base: float = 10_000.0
    logit_softcap: float = 30.0
    qk_gain_init: float = 1.5
    unet_skips: bool = True  # the second half of the layers adds what the first half stored
    attention: str = "auto"  # kernel: sdpa | cudnn | fa2 | fa3
    compute_dtype: str = "auto"  # activations and embedding: bf16 | fp32; matrices are float32 masters in both
    init_from: str | None = None  # starting weights: a .safetensors file or a weights-only .pt file


@dataclass
class OptimConfig:
    muon: str = "sharded"  # sharded: over gradients that DDP averaged | parallel: over banks, averages them itself
    matrix_lr: float = 0.04  # Muon, on the matrices of the blocks
    scalar_lr: float = 0.04  # Adam, on vectors, gains and scales
    tied_embed_lr: float = 0.05
    embed_lr: float = 0.6  # embedding when the head is untied
    head_lr: float = 0.008  # untied head
    muon_momentum: float = 0.95
    muon_momentum_warmup_start: float = 0.85
    muon_momentum_warmup_steps: int = 500
    muon_backend_steps: int = 5  # Newton-Schulz iterations
    muon_dtype: str = "auto"  # arithmetic of Newton-Schulz and what ranks exchange for it: bf16 | fp32
    muon_wd: float = 0.0  # decoupled, per unit of learning rate
    adam_wd: float = 0.0  # decoupled, on everything that is not Muon's
    embed_wd: float | None = None  # null = adam_wd
    head_wd: float | None = None  # null = adam_wd; untied head only
    beta1: float = 0.9
    beta2: float = 0.95
    adam_eps: float = 1e-8
    grad_clip_norm: float = 0.0  # global norm after the reduction over ranks; 0 = off


@dataclass
class ScheduleConfig:
    iterations: int = 20_000  # step cap; the clock usually ends the run first
    warmdown_iters: int = 1200  # linear decay to zero over this many (measured) steps; 0 = constant
    warmdown_fraction: float = 0.0  # share of the budget that decays instead; above 0 it wins over warmdown_iters
    min_lr: float = 0.0  # the learning-rate multiplier falls no lower
    warmup_steps: int = 20  # untimed steps that compile and warm caches; everything is restored after them


@dataclass
class DataConfig:
    name: str = "fineweb_sp1024"
    path: str = "data/datasets/fineweb10B_sp1024"  # folder of shards
    train_files: str = "fineweb_train_*.bin"
    val_files: str = "fineweb_val_*.bin"
    tokenizer_path: str = "data/tokenizers/fineweb_1024_bpe.model"
    vocab_size: int = 1024
    built_from: str | None = None  # "pydocs": build the folder on first use
    fingerprint: str | None = None  # what the data must hash to; null accepts any
    train_batch_tokens: int = 524_288  # tokens per optimizer step over all ranks
    train_seq_len: int = 1024
    micro_batches: int = 8  # equal parts of that batch, shared out over the ranks
    loader: str = "sequential"  # order of the training text: sequential | coprime | shuffled
    loader_seed: int = 1337  # of the orders that are random: coprime and shuffled
    shard_order: list[int] = field(default_factory=list)  # shards that sequential reads first, by index; then the rest


@dataclass
class TensorQuant:
    """How the tensors of a class are stored: symmetric integer codes with a scale per row, or floats."""

    format: str = "int8"  # int8 … int4 | ternary | fp16 | fp32
    clip: str = "quantile"  # magnitude of the largest code in a row: quantile | std | absmean | search
    clip_quantile: float = 0.9999984  # quantile: of |w|; 1 is the largest
    clip_k: float = 12.85  # std: standard deviations
    # search: quantiles to choose from, by row: least squared error, or least error of the layer with rounding=gptq
    clip_search: list[float] = field(default_factory=lambda: [0.999, 0.9995, 0.9999, 0.99999, 1.0])
    scale_floor: str | None = None  # null = quant.scale_floor
    rotation: str = "none"  # none | hadamard: of the columns, before coding
    rounding: str = "nearest"  # nearest | gptq: of matrices that calibration sees the inputs of, see quant.gptq


@dataclass
class GPTQConfig:
    """How classes with `rounding=gptq` are rounded; arXiv 2210.17323."""

    block_size: int = 128  # columns between updates of all the others: speed only
    # of the mean of the Hessian's diagonal, added to it: with each a row is rounded, and it keeps the best
    damping: list[float] = field(default_factory=lambda: [0.01, 0.0201, 0.002])
    act_order: bool = True  # columns in descending order of their inputs' size


@dataclass
class CalibrationConfig:
    """Where GPTQ's Hessians come from."""

    source: str = "train"  # train: text, on training time | self_generated: the model's own, on evaluation time
    tokens: int = 1_048_576  # over all ranks, at least
    reserve_seconds: float = 10.0  # train: the training clock stops so much before the budget
    temperature: float = 0.8  # self_generated
    seq_len: int | None = None  # self_generated: tokens of a sample; null = eval.seq_len


@dataclass
class LQERConfig:
    """Low-rank factors that repair the matrices rounded worst; arXiv 2402.02446."""

    rank: int = 0  # 0 = none
    top: int | None = None  # as many matrices below int8 as are repaired, those where it helps most; null = all
    format: str = "int8"  # of the factors


@dataclass
class PruneConfig:
    """Codes set to zero after rounding, cheapest first, in formats below int8."""

    codes: str = "ones"  # ones: those of ±1 | all
    fraction: float = 0.0  # of them
    to_fit: bool = False  # instead as few as bring artifact and code under the cap
    margin_bytes: int = 2000  # to_fit: that stay free under it


@dataclass
class QuantConfig:
    name: str = "int8"
    tag: str = "int8"  # what log lines call it, the field's word
    embed: TensorQuant = field(default_factory=TensorQuant)  # tok_emb and lm_head
    attn: TensorQuant = field(default_factory=TensorQuant)
    mlp: TensorQuant = field(default_factory=TensorQuant)
    other: TensorQuant = field(default_factory=TensorQuant)
    by_name: dict[str, str] = field(default_factory=dict)  # pattern of tensor names → format, before all other rules
    small_numel: int = 65_536  # float tensors up to this many elements are stored as fp16 (control tensors: fp32)
    scale_floor: str = "one_over_qmax"  # one_over_qmax: no step finer than 1/qmax | eps: rows keep their own range
    scale_rounding: str = "after"  # codes are of the scale before it is rounded to float16 | before: of the rounded one
    gptq: GPTQConfig = field(default_factory=GPTQConfig)
    calibration: CalibrationConfig = field(default_factory=CalibrationConfig)
    lqer: LQERConfig = field(default_factory=LQERConfig)
    prune: PruneConfig = field(default_factory=PruneConfig)
    codec: str = "zlib"  # zlib | zstd | lzma | brotli | context: our own entropy coder; the last two need golf[codec]
    codec_level: int = 9  # context has none
    layout: list[str] = field(default_factory=list)  # reordering before a byte codec, see artifact/codec/layouts.py


@dataclass
class TTTConfig:
    """Test-time training; null is what the method's public recipe says, see `ttt_recipe`."""

    method: str = "off"  # off | sgd: all parameters, over the whole split | lora: small factors, anew for a document
    lr: float | None = None
    chunk_tokens: int | None = None  # scored, then trained on
    batch_seqs: int | None = None  # per update over all ranks: sequences of a chunk (sgd), documents (lora)
    epochs: int = 3  # sgd: passes over a chunk
    momentum: float = 0.9  # sgd
    grad_clip: float = 1.0  # sgd: global norm; 0 = off
    freeze_blocks: int = 2  # sgd: the first blocks that stay as they are
    lora_rank: int = 8
    seq_len: int | None = None  # lora: tokens of a window; null = eval.seq_len


@dataclass
class EvalConfig:
    seq_len: int | None = None  # null = data.train_seq_len
    val_batch_tokens: int = 524_288  # per scoring step over all ranks and micro-batches
    val_loss_every: int = 1000  # steps between validations; 0 = only the last
    val_at_start: bool = True  # also before the first step, if there are validations in between at all
    dtype: str = "auto"  # arithmetic of scoring, before and after quantization alike: bf16 | fp32
    stride: int = 0  # tokens between sliding windows over the artifact's score; 0 = no sliding score
    stride_batch_seqs: int = 32  # windows per forward pass of a rank
    tail: str = "exact"  # exact: each token once | upstream: the public double-scored tail, to compare with it only
    ttt: TTTConfig = field(default_factory=TTTConfig)


@dataclass
class BudgetConfig:
    train_seconds: float = TRAIN_SECONDS  # 0 = no clock, schedule.iterations decides
    eval_seconds: float = EVAL_SECONDS
    artifact_bytes: int = CAP_BYTES  # decimal; model file + code
    grace_seconds: float = GRACE_SECONDS  # overrun of the training clock that is still `ok`


@dataclass
class RulesConfig:
    name: str = "house"
    failed_check: str = (
        "void"  # what a technique that does nothing makes of a run: void (it ends so) | stop (it does not start)
    )
    margin_nats: float = 0.0  # nats per token by which a variant has to be shown to beat its reference
    alpha: float = 0.05  # a verdict needs a one-sided p below it, corrected for the other verdicts of the sweep (Holm)
    confidence: float = 0.9  # of the two-sided intervals shown; 1 - 2 alpha agrees with an uncorrected verdict
    power: float = 0.8  # chance of finding what is there, where seeds needed or differences missed are computed
    # Code counted with a run's artifact: exact, the wrapped script that would be submitted; or estimate, at once.
    code_bytes: str = "exact"
    quiet_clock: bool = False  # nothing samples the machine while the clock runs, whatever track.system_metrics says


@dataclass
class ScaleConfig:
    name: str = "record"
    step_ratio: float = 1.0  # steps expected here / 13,780 of the record; `${steps:N}` in YAML shrinks by it
    small_tensor: int = 65_536  # elements; quant.small_numel of every preset of conf/quant that does not say its own


@dataclass
class LaunchConfig:
    nproc: int = 1  # ranks on a machine; 1 on one machine runs in the calling process
    nodes: int = 1  # machines; more than one only in a Slurm job
    device: str = "auto"
    compile: str = "auto"  # off | blocks: each block once, short start | full: whole model, one graph
    threads: int | None = None  # CPU threads per rank; null = cores / nproc
    train_log_every: int = 200  # steps between log lines; steps 1-10 are always logged
    jobs: int | None = None  # runs of a sweep at once; null = one for `nproc` GPUs, or as many as cores / threads
    fresh: bool = False  # a sweep runs what has finished before once more
    # Training time between checkpoints that a stopped run goes on from; 0 = none, null = 600 for a run without a clock.
    checkpoint_seconds: float | None = None
    speed_steps: int | None = None  # untimed steps whose speed is held against earlier runs; null = 30 on a GPU, else 0
    unfit: str = "warn"  # what a slow or busy machine makes of a run: warn | refuse


@dataclass
class ClusterConfig:
    """Where scripts/submit.py sends runs; what its machines have stands in for the machine that submits."""

    name: str = "local"
    executor: str = "local"  # submitit's: local | slurm
    nodes: int = 1  # machines a run, launch.nodes
    gpus: int = 0  # a node, and ranks on it; 0 = a CPU run of launch.nproc ranks
    gpu_name: str = ""
    cpus_per_rank: int = 1
    minutes: int = 45  # of a job: ten of training, loading, compiling, quantizing, scoring
    at_once: int = 16  # jobs of a sweep that run at the same time
    signal_seconds: int = 120  # notice before the time limit
    requeues: int = 3  # times that a job which was stopped is queued again
    dollars_per_gpu_hour: float = 0.0
    setup: list[str] = field(default_factory=list)  # shell lines before the run: modules, containers, environments
    sbatch: dict[str, Any] = field(default_factory=dict)  # any other field of sbatch: partition, account, qos, …


@dataclass
class SweepConfig:
    """What the runs of a sweep are to each other; conf/sweep/ says which runs there are."""

    kind: str | None = None  # grid | seeds | leave_one_out | add_one | quant_gap; null = told from what varies
    reference: str | None = None  # of tables: first (its first variant) | none; null = told from the kind


@dataclass
class TrackConfig:
    """A mirror of the run folder; a process of its own, so that nothing here can hold up the training."""

    backend: str = "none"  # none | wandb
    mode: str = "auto"  # online | offline: upload later | disabled; auto = online where W&B's key is found
    project: str = "golf"
    entity: str | None = None  # team or user; null = the key's own
    group: str | None = None  # what charts put together; null = the variant
    tags: list[str] = field(default_factory=list)  # besides scale, data and techniques
    attach: list[str] = field(default_factory=list)  # files that go along: config | log | curves | artifact
    system_metrics: bool = True  # sample use of CPU and GPU every 15 s
    init_seconds: float = 20.0  # to wait for the server before recording offline
    finish_seconds: float = 30.0  # that the command waits for the upload after the run has ended


@dataclass
class Config:
    """A whole experiment. `seed` makes a variant a run; `launch`, `rules`, `track`, `sweep`, `note` change nothing."""

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
    tech: dict[str, Any] = field(default_factory=dict)  # selected techniques: name → settings, see training/techniques
    drop: list[str] = field(default_factory=list)  # what was taken out again, already done, see dropping.py
    seed: int = 1337
    name: str = "run"  # what folders and tables call the variant
    note: str = ""


def tensor_classes(quant: QuantConfig) -> dict[str, TensorQuant]:
    """The settings of every class of tensors, by its name."""
    return {name: getattr(quant, name) for name in TENSOR_CLASSES}


def scale_floor(how: TensorQuant, quant: QuantConfig) -> str:
    """The floor of the scales of a class of tensors: its own, else that of all of them."""
    return how.scale_floor or quant.scale_floor


def uses_gptq(quant: QuantConfig) -> bool:
    """Whether any class of tensors is rounded by GPTQ, which has to be calibrated."""
    return "gptq" in (quant.embed.rounding, quant.attn.rounding, quant.mlp.rounding, quant.other.rounding)


def rotates(quant: QuantConfig) -> bool:
    """Whether any class of tensors is stored rotated."""
    return "hadamard" in (quant.embed.rotation, quant.attn.rotation, quant.mlp.rotation, quant.other.rotation)


def training_seconds(cfg: Config) -> float:
    """When the training clock stops: the budget less what calibration on training text keeps of it; 0 = no clock."""
    calibrates = uses_gptq(cfg.quant) and cfg.quant.calibration.source == "train"
    reserve = cfg.quant.calibration.reserve_seconds if calibrates else 0.0
    return cfg.budget.train_seconds - reserve if cfg.budget.train_seconds else 0.0


def mlp_hidden(model: ModelConfig) -> int:
    """Width of the MLP's hidden layer."""
    return model.mlp_hidden or int(model.mlp_mult * model.model_dim)


def is_tracked(track: TrackConfig) -> bool:
    """Whether the run has a mirror."""
    return track.backend != "none" and track.mode != "disabled"


def eval_seq_len(cfg: Config) -> int:
    """Tokens per scored sequence."""
    return cfg.eval.seq_len or cfg.data.train_seq_len


class TTTRecipe(NamedTuple):
    """What `eval.ttt` leaves open, filled in."""

    lr: float
    chunk_tokens: int
    batch_seqs: int
    seq_len: int


def ttt_recipe(cfg: Config) -> TTTRecipe:
    """The settings of the chosen method; the recipe's own where the configuration says null.

    sgd: PR #461/#549. lora: record 2026-03-17_LoRA_TTT, whose chunk of 256 is a quarter of its window of 1024.
    """
    ttt, seq_len = cfg.eval.ttt, eval_seq_len(cfg)
    if ttt.method == "lora":
        seq_len = ttt.seq_len or seq_len
        recipe = TTTRecipe(0.01, max(seq_len // 4, 1), 64, seq_len)
    else:
        recipe = TTTRecipe(0.002, 32_768, 32, seq_len)
    given = {key: getattr(ttt, key) for key in ("lr", "chunk_tokens", "batch_seqs")}
    return recipe._replace(**{key: value for key, value in given.items() if value is not None})


def world_size(cfg: Config) -> int:
    """Ranks on all machines together."""
    return cfg.launch.nproc * cfg.launch.nodes


def grad_accum_steps(cfg: Config) -> int:
    """Micro-batches that each rank runs per optimizer step."""
    return cfg.data.micro_batches // world_size(cfg)


def techniques(cfg: Config) -> list[Any]:
    """The selected techniques in the order in which they are applied, whatever order they were named in."""
    return sorted(cfg.tech.values(), key=lambda technique: (technique.stage, technique.name))


def to_dict(cfg: Config) -> dict[str, Any]:
    """Plain nested dict, as written to config.json."""
    return dataclasses.asdict(cfg)


T = TypeVar("T")


def from_dict(kind: type[T], values: dict[str, Any]) -> T:
    """Inverse of `to_dict` for `Config` or one of its groups; raises `GolfError` on unknown keys and types."""
    known = get_type_hints(kind)
    settable = {f.name for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    _refuse_unknown(kind.__name__, values, settable)
    settings = {}
    for key, value in values.items():
        wanted = known[key]
        if kind is Config and key == "tech":
            settings[key] = techniques_from_dict(value)
        elif dataclasses.is_dataclass(wanted) and isinstance(value, dict):
            settings[key] = from_dict(wanted, value)  # type: ignore[arg-type]
        elif _is_of(value, wanted):
            settings[key] = value
        else:
            raise GolfError(f"{kind.__name__}.{key} is {value!r}, which is not of type {wanted}.")
    return kind(**settings)


def techniques_from_dict(values: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Settings objects of techniques by name, from what `to_dict` made of them."""
    if not values:
        return {}
    _refuse_unknown("Config.tech", values, technique_types())
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
    if isinstance(value, bool):
        return wanted is bool
    return isinstance(value, wanted) or (wanted is float and isinstance(value, int))
