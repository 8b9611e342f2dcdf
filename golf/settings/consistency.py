"""Whether settings fit together: every check across fields, each with a sentence that says what to change."""

from __future__ import annotations

import re

from golf.errors import GolfError
from golf.settings.config import (
    Config,
    DataConfig,
    ModelConfig,
    QuantConfig,
    RulesConfig,
    TensorQuant,
    TrackConfig,
    eval_seq_len,
    mlp_hidden,
    scale_floor,
    techniques,
    tensor_classes,
    training_seconds,
    ttt_recipe,
    uses_gptq,
)

COMPUTE_DTYPES = ("bf16", "fp32")
INTEGER_FORMATS = ("int8", "int7", "int6", "int5", "int4")
TENSOR_FORMATS = (*INTEGER_FORMATS, "ternary", "fp16", "fp32")
CLIPS = ("quantile", "std", "absmean", "search")
ROTATIONS = ("none", "hadamard")
ROUNDINGS = ("nearest", "gptq")
CALIBRATION_SOURCES = ("train", "self_generated")
SCALE_FLOORS = ("one_over_qmax", "eps")
SCALE_ROUNDINGS = ("after", "before")
CODEC_LEVELS = {"zlib": (0, 9), "zstd": (1, 22), "lzma": (0, 9), "brotli": (0, 11)}
LAYOUTS = ("pack_bits", "by_role", "sort_rows", "byte_planes")
ATTENTION_BACKENDS = ("sdpa", "cudnn", "fa2", "fa3")
MUON_FORMS = ("sharded", "parallel")
COMPILE_MODES = ("off", "blocks", "full")
DEVICES = ("cpu", "cuda")
LOADERS = ("sequential", "coprime", "shuffled")
TAILS = ("exact", "upstream")
TTT_METHODS = ("off", "sgd", "lora")
SWEEP_KINDS = ("grid", "seeds", "leave_one_out", "add_one", "quant_gap")
SWEEP_REFERENCES = ("first", "none")
TRACKERS = ("none", "wandb")
TRACK_MODES = ("online", "offline", "disabled")
ATTACHABLE = ("config", "log", "curves", "artifact")
MAX_VOCAB_SIZE = 65_536  # tokens are stored as uint16


def _require(ok: bool, sentence: str) -> None:
    if not ok:
        raise GolfError(sentence)


def _one_of(key: str, value: str, allowed: tuple[str, ...]) -> None:
    _require(value in allowed, f"{key}={value} is not known: choose one of {', '.join(allowed)}.")


def check(cfg: Config) -> None:
    """Raise `GolfError` with what to change if fields contradict each other. Call after `settle`."""
    _require(
        bool(cfg.data.path and cfg.data.tokenizer_path and cfg.data.vocab_size > 0),
        f"data={cfg.data.name} needs data.path, data.tokenizer_path and data.vocab_size: "
        "scripts/tokenize_docs.py prints all three for your own text.",
    )
    check_model(cfg.model)
    _check_batch(cfg)
    _check_choices(cfg)
    _check_techniques(cfg)
    _check_loader(cfg.data)
    _check_sliding(cfg)
    _check_ttt(cfg)
    check_rules(cfg.rules)
    _check_track(cfg.track)
    _require(
        re.fullmatch(r"[\w.+-]+", cfg.name) is not None,
        f"name={cfg.name} names a folder: use letters, digits and . _ + - only.",
    )
    _require(cfg.seed >= 0, f"seed={cfg.seed} is negative: choose 0 or more.")
    for key in ("train_seconds", "eval_seconds", "artifact_bytes", "grace_seconds"):
        _require(getattr(cfg.budget, key) >= 0, f"budget.{key} is negative: 0 is the smallest that makes sense.")
    _require(
        cfg.schedule.iterations > 0 and cfg.schedule.warmdown_iters >= 0 and cfg.schedule.warmup_steps >= 0,
        "schedule.iterations has to be at least 1, warmdown_iters and warmup_steps at least 0.",
    )
    for key in ("warmdown_fraction", "min_lr"):
        value = getattr(cfg.schedule, key)
        _require(0 <= value <= 1, f"schedule.{key}={value} is a fraction: choose a value from 0 to 1.")


def check_model(m: ModelConfig) -> None:
    """Raise `GolfError` for a shape that cannot be built."""
    for key in ("vocab_size", "num_layers", "model_dim", "num_heads", "num_kv_heads"):
        _require(getattr(m, key) > 0, f"model.{key}={getattr(m, key)} has to be at least 1.")
    _require(
        m.model_dim % m.num_heads == 0,
        f"model.num_heads={m.num_heads} does not divide model.model_dim={m.model_dim}: "
        "change one so that every head has the same width.",
    )
    head_dim = m.model_dim // m.num_heads
    _require(
        head_dim % 2 == 0,
        f"heads are {head_dim} wide (model_dim {m.model_dim} / num_heads {m.num_heads}), "
        "but rotary embedding turns pairs of channels: choose an even width.",
    )
    _require(
        m.num_heads % m.num_kv_heads == 0,
        f"model.num_kv_heads={m.num_kv_heads} does not divide model.num_heads={m.num_heads}: "
        "every key-value head has to serve the same number of query heads.",
    )
    _require(mlp_hidden(m) > 0, "the MLP has no hidden width: set model.mlp_mult or model.mlp_hidden above 0.")
    _require(
        m.vocab_size <= MAX_VOCAB_SIZE,
        f"model.vocab_size={m.vocab_size} is over {MAX_VOCAB_SIZE}, the most that 16-bit tokens can name.",
    )


def check_rules(rules: RulesConfig) -> None:
    """Raise `GolfError` for rules that no verdict can follow."""
    _one_of("rules.failed_check", rules.failed_check, ("void", "stop"))
    _one_of("rules.code_bytes", rules.code_bytes, ("exact", "estimate"))
    _require(rules.margin_nats >= 0, f"rules.margin_nats={rules.margin_nats} is negative: 0 asks for any improvement.")
    for key in ("alpha", "confidence", "power"):
        value = getattr(rules, key)
        _require(0 < value < 1, f"rules.{key}={value} is a probability: choose a value between 0 and 1.")


def _check_batch(cfg: Config) -> None:
    d, nproc, nodes = cfg.data, cfg.launch.nproc, cfg.launch.nodes
    for key in ("train_batch_tokens", "train_seq_len", "micro_batches"):
        _require(getattr(d, key) > 0, f"data.{key}={getattr(d, key)} has to be at least 1.")
    _require(nproc > 0, f"launch.nproc={nproc} has to be at least 1.")
    _require(nodes > 0, f"launch.nodes={nodes} has to be at least 1.")
    _require(
        d.micro_batches % (nproc * nodes) == 0,
        f"launch.nproc={nproc}{f' on {nodes} nodes' * (nodes > 1)} does not divide "
        f"data.micro_batches={d.micro_batches}: the ranks have to share the micro-batches of a step evenly.",
    )
    unit = d.micro_batches * d.train_seq_len
    _require(
        d.train_batch_tokens % unit == 0,
        f"data.train_batch_tokens={d.train_batch_tokens} is not a multiple of micro_batches × train_seq_len = {unit}: "
        f"the nearest that is: {max(1, round(d.train_batch_tokens / unit)) * unit}.",
    )
    seq_len = eval_seq_len(cfg)
    _require(seq_len > 0, f"eval.seq_len={seq_len} has to be at least 1.")
    _require(
        cfg.eval.val_batch_tokens >= d.micro_batches * seq_len,
        f"eval.val_batch_tokens={cfg.eval.val_batch_tokens} holds less than one sequence of {seq_len} tokens per "
        f"micro-batch: set it to {d.micro_batches * seq_len} or more.",
    )


def _check_loader(d: DataConfig) -> None:
    _one_of("data.loader", d.loader, LOADERS)
    _require(d.loader_seed >= 0, f"data.loader_seed={d.loader_seed} is negative: choose 0 or more.")
    _require(
        d.loader == "sequential" or not d.shard_order,
        f"data.loader={d.loader} mixes all shards, so data.shard_order has no meaning: drop one of the two.",
    )


def _check_sliding(cfg: Config) -> None:
    e, seq_len = cfg.eval, eval_seq_len(cfg)
    _require(
        0 <= e.stride < seq_len,
        f"eval.stride={e.stride} has to be below the sequence length of {seq_len}: choose 1 to {seq_len - 1}, "
        "or 0 for no sliding score.",
    )
    _require(e.stride_batch_seqs > 0, f"eval.stride_batch_seqs={e.stride_batch_seqs} has to be at least 1.")
    _one_of("eval.tail", e.tail, TAILS)
    _require(
        e.tail == "exact" or (e.stride > 0 and e.ttt.method == "off"),
        "eval.tail=upstream scores the last tokens twice, which is of use only to compare sliding scores with public "
        "ones: set eval.stride and leave eval.ttt.method=off, or use eval.tail=exact.",
    )


def _check_ttt(cfg: Config) -> None:
    ttt, recipe, stride = cfg.eval.ttt, ttt_recipe(cfg), cfg.eval.stride
    _one_of("eval.ttt.method", ttt.method, TTT_METHODS)
    if ttt.method == "off":
        return
    _require(recipe.lr > 0, f"eval.ttt.lr={recipe.lr} has to be above 0: eval.ttt.method=off trains nothing.")
    for key in ("chunk_tokens", "batch_seqs", "seq_len"):
        _require(getattr(recipe, key) > 0, f"eval.ttt.{key}={getattr(recipe, key)} has to be at least 1.")
    for key in ("epochs", "lora_rank"):
        _require(getattr(ttt, key) > 0, f"eval.ttt.{key}={getattr(ttt, key)} has to be at least 1.")
    _require(0 <= ttt.momentum < 1, f"eval.ttt.momentum={ttt.momentum} has to lie at 0 or above and below 1.")
    _require(ttt.grad_clip >= 0, "eval.ttt.grad_clip is negative: 0 turns clipping off.")
    _require(
        0 <= ttt.freeze_blocks <= cfg.model.num_layers,
        f"eval.ttt.freeze_blocks={ttt.freeze_blocks} is not among the model's {cfg.model.num_layers} blocks.",
    )
    if ttt.method == "lora":
        _require(
            recipe.chunk_tokens <= recipe.seq_len,
            f"eval.ttt.chunk_tokens={recipe.chunk_tokens} does not fit into windows of {recipe.seq_len} tokens: "
            "lower it or raise eval.ttt.seq_len.",
        )
        return
    for key, unit in (("the sequence length", recipe.seq_len), ("eval.stride", stride or recipe.seq_len)):
        _require(
            recipe.chunk_tokens % unit == 0,
            f"eval.ttt.chunk_tokens={recipe.chunk_tokens} is not a multiple of {key}, {unit}: the nearest that is: "
            f"{max(1, round(recipe.chunk_tokens / unit)) * unit}.",
        )


def _check_track(track: TrackConfig) -> None:
    _one_of("track.backend", track.backend, TRACKERS)
    if track.backend == "none":
        return
    _one_of("track.mode", track.mode, TRACK_MODES)
    for name in track.attach:
        _one_of("track.attach", name, ATTACHABLE)
    for key in ("init_seconds", "finish_seconds"):
        _require(getattr(track, key) > 0, f"track.{key} has to be above 0: it is how long to wait for W&B.")


def _check_choices(cfg: Config) -> None:
    _one_of("model.compute_dtype", cfg.model.compute_dtype, COMPUTE_DTYPES)
    _one_of("optim.muon", cfg.optim.muon, MUON_FORMS)
    _one_of("optim.muon_dtype", cfg.optim.muon_dtype, COMPUTE_DTYPES)
    _one_of("eval.dtype", cfg.eval.dtype, COMPUTE_DTYPES)
    _one_of("model.attention", cfg.model.attention, ATTENTION_BACKENDS)
    _require(
        cfg.model.attention == "sdpa"
        or {cfg.model.compute_dtype, cfg.eval.dtype, cfg.launch.device} == {"bf16", "cuda"},
        f"model.attention={cfg.model.attention} needs a GPU and bf16 throughout: use model.attention=sdpa here.",
    )
    _one_of("launch.device", cfg.launch.device, DEVICES)
    _one_of("launch.compile", cfg.launch.compile, COMPILE_MODES)
    _require(cfg.launch.jobs is None or cfg.launch.jobs > 0, f"launch.jobs={cfg.launch.jobs} has to be at least 1.")
    _one_of("sweep.kind", cfg.sweep.kind or "grid", SWEEP_KINDS)
    _one_of("sweep.reference", cfg.sweep.reference or "none", SWEEP_REFERENCES)
    _one_of("launch.unfit", cfg.launch.unfit, ("warn", "refuse"))
    _check_quant(cfg)


def _check_quant(cfg: Config) -> None:
    quant = cfg.quant
    for key, how in tensor_classes(quant).items():
        _check_tensor_quant(f"quant.{key}", how)
        _one_of(f"quant.{key}.scale_floor", scale_floor(how, quant), SCALE_FLOORS)
    for pattern, fmt in quant.by_name.items():
        _one_of(f"quant.by_name.{pattern}", fmt, TENSOR_FORMATS)
    _one_of("quant.scale_floor", quant.scale_floor, SCALE_FLOORS)
    _one_of("quant.scale_rounding", quant.scale_rounding, SCALE_ROUNDINGS)
    _check_codec(quant)
    _require(quant.small_numel >= 0, "quant.small_numel is a number of elements: 0 or more.")
    _check_passes(quant)
    if uses_gptq(quant) and quant.calibration.source == "train" and cfg.budget.train_seconds:
        _require(
            training_seconds(cfg) > 0,
            f"quant.calibration.reserve_seconds={quant.calibration.reserve_seconds:g} leaves nothing of the "
            f"{cfg.budget.train_seconds:g} s to train in: reserve less.",
        )


def _check_passes(quant: QuantConfig) -> None:
    gptq, calibration, prune, lqer = quant.gptq, quant.calibration, quant.prune, quant.lqer
    _require(gptq.block_size > 0, f"quant.gptq.block_size={gptq.block_size} has to be at least 1.")
    _require(
        bool(gptq.damping) and all(0 <= d <= 1 for d in gptq.damping),
        "quant.gptq.damping lists shares of the diagonal's mean, at least one, each from 0 to 1: [0.01] is usual.",
    )
    _one_of("quant.calibration.source", calibration.source, CALIBRATION_SOURCES)
    _require(calibration.tokens > 0, f"quant.calibration.tokens={calibration.tokens} has to be at least 1.")
    _require(calibration.reserve_seconds >= 0, "quant.calibration.reserve_seconds is negative: 0 reserves nothing.")
    _require(calibration.temperature > 0, "quant.calibration.temperature has to be above 0.")
    _require(calibration.seq_len is None or calibration.seq_len > 0, "quant.calibration.seq_len has to be at least 1.")
    _require(
        lqer.rank >= 0 and (lqer.top is None or lqer.top > 0),
        "quant.lqer.rank is 0 or more, quant.lqer.top at least 1, or null for every matrix.",
    )
    _one_of("quant.lqer.format", lqer.format, INTEGER_FORMATS)
    _one_of("quant.prune.codes", prune.codes, ("ones", "all"))
    _require(0 <= prune.fraction <= 1, "quant.prune.fraction is a share of the codes: 0 to 1.")
    _require(prune.margin_bytes >= 0, "quant.prune.margin_bytes is negative: 0 fills the cap.")
    _require(
        not (prune.to_fit and prune.fraction),
        "quant.prune.to_fit finds the share itself: leave quant.prune.fraction=0 with it.",
    )


def _check_tensor_quant(key: str, how: TensorQuant) -> None:
    _one_of(f"{key}.format", how.format, TENSOR_FORMATS)
    _one_of(f"{key}.clip", how.clip, CLIPS)
    _one_of(f"{key}.rotation", how.rotation, ROTATIONS)
    _one_of(f"{key}.rounding", how.rounding, ROUNDINGS)
    _require(0 < how.clip_quantile <= 1, f"{key}.clip_quantile has to lie above 0 and at most at 1.")
    _require(how.clip_k > 0, f"{key}.clip_k={how.clip_k} is a number of standard deviations: choose one above 0.")
    _require(
        bool(how.clip_search) and all(0 < q <= 1 for q in how.clip_search),
        f"{key}.clip_search lists quantiles above 0, at most 1: give at least one.",
    )
    _require(
        how.format != "ternary" or how.clip != "quantile",
        f"{key}.format=ternary with {key}.clip=quantile would round nearly every weight to zero: "
        f"set {key}.clip=absmean.",
    )


def _check_codec(quant: QuantConfig) -> None:
    _one_of("quant.codec", quant.codec, (*CODEC_LEVELS, "context"))
    for name in quant.layout:
        _one_of("quant.layout", name, LAYOUTS)
    if quant.codec == "context":
        _require(not quant.layout, "quant.codec=context reads codes, not bytes: leave quant.layout=[] with it.")
        return
    low, high = CODEC_LEVELS[quant.codec]
    _require(
        low <= quant.codec_level <= high,
        f"quant.codec_level={quant.codec_level} is none of {quant.codec}'s: choose {low} to {high}.",
    )


def _check_techniques(cfg: Config) -> None:
    for technique in techniques(cfg):
        for other in technique.requires:
            _require(
                other in cfg.tech, f"tech {technique.name} needs {other}: select it too, or drop {technique.name}."
            )
        for other in technique.conflicts:
            _require(other not in cfg.tech, f"tech {technique.name} and {other} exclude each other: drop one of them.")
        technique.check(cfg)


def warnings(cfg: Config) -> list[str]:
    """Sentences about combinations that run but are unlikely to be meant."""
    return [sentence for technique in techniques(cfg) for sentence in technique.warnings(cfg)]
