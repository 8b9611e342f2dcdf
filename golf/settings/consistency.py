"""Checks across fields; choices and ranges stand at the fields.

Each check has a sentence in consistency.yaml that says what to change: `_require(condition, name, …)` raises the one
called `name`, filled with the values given, where the condition does not hold.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from golf.challenge import BYTE_VOCABULARY
from golf.errors import RestrictionError
from golf.idea_folders import ideas
from golf.registry import CHANGES_ORDER, CHANGES_SCORE
from golf.settings.config import (
    Config,
    ModelConfig,
    OptimConfig,
    changes_steps,
    eval_seq_len,
    from_dict,
    has_stages,
    is_packed,
    micro_batch_tokens,
    missing_for_documents,
    mlp_hidden,
    stages,
    techniques,
    training_seconds,
    trains_stored,
    ttt_recipe,
    world_size,
)
from golf.settings.fields import check_fields
from golf.settings.names import technique_settings
from golf.settings.quant_config import (
    BY_NAME,
    INTEGER_FORMATS,
    TensorQuant,
    format_keys,
    tensor_classes,
    uses_gptq,
    uses_trellis,
)
from golf.tables import table_of
from golf.words import counted, listed

SENTENCES: dict[str, str] = table_of(__file__)
CODEC_LEVELS = {"zlib": (0, 9), "zstd": (1, 22), "lzma": (0, 9), "brotli": (0, 11)}
POLAR_EXPRESS_STEPS = 5  # triples of coefficients in training/optim/muon.py
MANY_STEPS = 10_000  # a run without a clock is named from so many on
FAR_RATE = 2  # a learning rate is named from this factor beside the scale's on
MAX_VOCAB_SIZE = 65_536  # tokens are stored as uint16


def _require(ok: bool, name: str, /, **values: Any) -> None:
    if not ok:
        raise RestrictionError(SENTENCES[name].format(**values))


def _nearest(number: int, unit: int) -> int:
    """Return the multiple of `unit` that is nearest to `number`, the first one at least."""
    return max(1, round(number / unit)) * unit


def check(cfg: Config) -> None:
    """Raise `GolfError` with what to change if a field is outside its range or fields contradict each other.

    Call after `settle`.
    """
    check_values(cfg)
    _check_shape(cfg.model)
    _check_batch(cfg)
    if has_stages(cfg):
        _check_stages(cfg)
    _check_device(cfg)
    _check_muon(cfg)
    _check_quant(cfg)
    _check_techniques(cfg)
    _check_documents(cfg)
    _require(cfg.data.loader == "sequential" or not cfg.data.shard_order, "shard_order", cfg=cfg)
    seq_len = eval_seq_len(cfg)
    _require(cfg.eval.stride < seq_len, "sliding", cfg=cfg, seq_len=seq_len, most=seq_len - 1)
    if cfg.eval.ttt.method != "off":
        _check_ttt(cfg)
    _check_predictors(cfg)
    if cfg.eval.tilt.method != "off":
        _check_tilt(cfg)
    _require(re.fullmatch(r"(?!\.)[\w.+-]+", cfg.name) is not None, "name", cfg=cfg)


def check_values(cfg: Config) -> None:
    """Raise `GolfError` for a value that its field does not allow, in the groups that are in use."""
    # First, because data=own leaves the vocabulary at 0 and this sentence says where to get it from.
    is_bytes = cfg.data.units == "bytes"
    is_named = bool(cfg.data.path and (cfg.data.tokenizer_path or is_bytes) and cfg.data.vocab_size > 0)
    _require(is_named, "data.unnamed", cfg=cfg)
    has_pieces = cfg.data.tokenizer_path or cfg.data.byte_sidecar or cfg.data.vocab_size != BYTE_VOCABULARY
    _require(not (is_bytes and has_pieces), "data.bytes", cfg=cfg, size=BYTE_VOCABULARY)
    # Public command lines carry zeros in groups that are switched off, which do no harm.
    off = {"eval.ttt": cfg.eval.ttt.method == "off", "track": cfg.track.backend == "none"}
    own = [key for key, name in format_keys(cfg.quant).items() if name in technique_settings()]
    check_fields(cfg, unused=[*(group for group, is_off in off.items() if is_off), *own])


def check_model(m: ModelConfig) -> None:
    """Raise `GolfError` for a shape that cannot be built."""
    check_fields(m, "model.")
    _check_shape(m)


def _check_shape(m: ModelConfig) -> None:
    _require(m.model_dim % m.num_heads == 0, "heads.number", m=m)
    head_dim = m.model_dim // m.num_heads
    _require(head_dim % 2 == 0, "heads.width", m=m, head_dim=head_dim)
    _require(m.num_heads % m.num_kv_heads == 0, "heads.key_value", m=m)
    _require(mlp_hidden(m) > 0, "mlp")
    _require(m.vocab_size <= MAX_VOCAB_SIZE, "vocabulary", m=m, most=MAX_VOCAB_SIZE)


def _check_batch(cfg: Config) -> None:
    d, nodes = cfg.data, cfg.launch.nodes
    machines = f" on {nodes} nodes" if nodes > 1 else ""
    _require(d.micro_batches % world_size(cfg) == 0, "batch.ranks", cfg=cfg, machines=machines)
    unit = d.micro_batches * d.train_seq_len
    nearest = _nearest(d.train_batch_tokens, unit)
    _require(d.train_batch_tokens % unit == 0, "batch.tokens", cfg=cfg, unit=unit, nearest=nearest)
    seq_len = eval_seq_len(cfg)
    least = d.micro_batches * seq_len
    _require(cfg.eval.val_batch_tokens >= least, "batch.validation", cfg=cfg, seq_len=seq_len, least=least)


def _check_stages(cfg: Config) -> None:
    all_stages, longest = stages(cfg), cfg.data.train_seq_len
    ends = [stage.until for stage in all_stages]
    _require(ends == sorted(set(ends)) and ends[-1] == 1, "stages.ends", ends=listed([f"{end:g}" for end in ends]))
    most = max(stage.seq_len for stage in all_stages)
    _require(most == longest, "stages.longest", cfg=cfg, most=most)
    # Only the sequential loader's micro-batch is one stretch of text; elsewhere a row is cut.
    row = micro_batch_tokens(cfg) if cfg.data.loader == "sequential" else longest
    step, ranks = micro_batch_tokens(cfg) * world_size(cfg), counted(world_size(cfg), "rank")
    for number, stage in enumerate(all_stages):
        _require(is_packed(cfg) or row % stage.seq_len == 0, "stages.length", number=number, stage=stage, row=row)
        nearest = _nearest(stage.batch_tokens, step)
        is_shared = stage.batch_tokens % step == 0
        _require(is_shared, "stages.batch", number=number, stage=stage, step=step, ranks=ranks, nearest=nearest)


def _check_documents(cfg: Config) -> None:
    # All that is missing is said at once: each of these settings needs the ones behind it.
    within, missing = cfg.model.within_documents, " ".join(missing_for_documents(cfg, is_packed(cfg)))
    _require(not is_packed(cfg) or within, "documents.packed", cfg=cfg, missing=missing)
    _require(not within or cfg.eval.documents, "documents.scores", missing=missing)
    _require(not cfg.eval.documents or not missing, "documents.technique", missing=missing)


def _check_ttt(cfg: Config) -> None:
    ttt, recipe, stride = cfg.eval.ttt, ttt_recipe(cfg), cfg.eval.stride
    _check_frozen(cfg, "eval.ttt", ttt.freeze_blocks)
    if ttt.method == "lora":
        _require(recipe.chunk_tokens <= recipe.seq_len, "ttt.chunk", recipe=recipe)
        limits, sizes = [pair[0] for pair in ttt.lora_chunks if pair], [pair[-1] for pair in ttt.lora_chunks if pair]
        are_pairs = all(len(pair) == 2 for pair in ttt.lora_chunks) and limits == sorted(set(limits))
        fit = all(1 <= size <= recipe.seq_len for size in sizes)
        _require(are_pairs and fit, "ttt.chunks", cfg=cfg, recipe=recipe)
        _require(len(ttt.lora_targets) > 0, "ttt.targets")
        _check_phases(cfg, recipe.seq_len)
        return
    for what, unit in (("the sequence length", recipe.seq_len), ("eval.stride", stride or recipe.seq_len)):
        nearest = _nearest(recipe.chunk_tokens, unit)
        _require(recipe.chunk_tokens % unit == 0, "ttt.multiple", recipe=recipe, what=what, unit=unit, nearest=nearest)


def _check_frozen(cfg: Config, key: str, frozen: int) -> None:
    _require(frozen <= cfg.model.num_layers, "ttt.frozen", cfg=cfg, key=key, frozen=frozen)


def _check_phases(cfg: Config, seq_len: int) -> None:
    phases = cfg.eval.ttt.lora_phases
    if not phases.count:
        return
    _require(cfg.eval.documents, "phases.documents")
    _require(phases.chunk_tokens >= seq_len, "phases.chunk", chunk_tokens=phases.chunk_tokens, seq_len=seq_len)
    _check_frozen(cfg, "eval.ttt.lora_phases", phases.freeze_blocks)


def _check_predictors(cfg: Config) -> None:
    mixed = [f"tech {technique.name}" for technique in techniques(cfg) if technique.effect == CHANGES_SCORE]
    mixed += ["eval.tilt"] if cfg.eval.tilt.method != "off" else []
    _require(len(mixed) < 2, "predictors.two", mixed=listed(mixed))
    has_score = cfg.eval.stride > 0 or cfg.eval.ttt.method == "lora"
    _require(not mixed or has_score, "predictors.score", mixed="".join(mixed))


def _check_tilt(cfg: Config) -> None:
    tilt = cfg.eval.tilt
    _require(len(tilt.contexts) == len(tilt.least_shares) == len(tilt.least_counts), "tilt.lengths")
    _require(tilt.hedge == 0 or cfg.eval.ttt.method == "lora", "tilt.hedge")
    _require(not (cfg.eval.documents and cfg.eval.stride), "tilt.documents")


def _check_device(cfg: Config) -> None:
    launch = cfg.launch
    is_alone = launch.nproc == launch.nodes == 1 and launch.compile in ("auto", "off")
    _require(launch.device != "mps" or is_alone, "device.mps")
    is_flash_ready = {cfg.model.compute_dtype, cfg.eval.dtype, launch.device} == {"bf16", "cuda"}
    _require(cfg.model.attention == "sdpa" or is_flash_ready, "device.attention", cfg=cfg)


def _check_muon(cfg: Config) -> None:
    o, shares, factors = cfg.optim, cfg.schedule.weight_decay_shares, cfg.schedule.weight_decay_factors
    has_triples = o.muon_coefficients == "quintic" or o.muon_backend_steps <= POLAR_EXPRESS_STEPS
    _require(has_triples, "muon.coefficients", steps=POLAR_EXPRESS_STEPS)
    _require(cfg.schedule.muon_wd_taper_final == 1.0 or o.muon_wd > 0, "muon.taper", cfg=cfg)
    go_together = len(shares) == len(factors) and shares == sorted(set(shares)) and min(factors, default=0) >= 0
    _require(go_together, "decay.factors", shares=shares, factors=factors)
    _require(o.muon == "parallel" or not o.clip_before_reduction, "clipping", cfg=cfg)


def _check_quant(cfg: Config) -> None:
    quant = cfg.quant
    prune = bool(quant.prune.to_fit or quant.prune.fraction)
    _check_own_formats(cfg)
    for key, how in tensor_classes(quant).items():
        _check_class(key, how)
    _check_names(cfg)
    _check_codec(cfg)
    if quant.sensitive.top > 0:
        _require(uses_gptq(quant), "sensitive.hessians")
        in_training = [name for name in ("fake_quant", "soft_round") if name in cfg.tech]
        _require(not in_training, "sensitive.training", techniques=", ".join(in_training))
    if quant.step_sensitivity > 0:
        main = (quant.embed, quant.attn, quant.mlp)
        _require(any(how.rounding != "nearest" and how.clip in ("std", "matrix_std") for how in main), "steps.clip")
        _require(not (quant.sensitive.top or quant.clip_sensitivity), "steps.twice")
    if quant.gptq.drift:
        _require(uses_gptq(quant), "drift.gptq")
        _require(not (prune or quant.sensitive.top or quant.clip_sensitivity), "drift.among_all")
    _require(not (quant.prune.to_fit and quant.prune.fraction), "prune.share")
    if quant.fit == "cap":
        _check_fit(cfg)
    if uses_trellis(quant):
        _require(not prune, "prune.trellis")
    if trains_stored(quant):
        _require(not quant.prune.to_fit, "tune.bytes")
        _require(not (uses_gptq(quant) and quant.calibration.source == "self_generated"), "tune.text")
    if quant.retrain.steps > 0:
        _require(uses_gptq(quant), "retrain.gptq")
        _require(not (prune or quant.sensitive.top or quant.clip_sensitivity), "retrain.among_all")
        _require(not quant.gptq.drift, "retrain.drift")
    parts = {"calibration": uses_gptq(quant), "tune": trains_stored(quant)}
    reserves = [
        f"quant.{n}.reserve_seconds={getattr(quant, n).reserve_seconds:g}" for n, is_on in parts.items() if is_on
    ]
    _require(not cfg.budget.train_seconds or training_seconds(cfg) > 0, "reserve", cfg=cfg, reserves=listed(reserves))


def _check_class(key: str, how: TensorQuant) -> None:
    is_plain = how.rounding == "nearest"
    _require(how.format != "ternary" or how.clip != "quantile", "quant.ternary", key=key)
    _require(how.columns == 0 or not is_plain, "quant.columns", key=key, how=how)
    is_in_order = how.rounding == "gptq" and how.rotation == "none" and how.columns == 0
    _require(how.finer_columns == 0 or is_in_order, "quant.finer_columns", key=key)
    _require(how.clip_importance == 0 or not is_plain, "quant.clip_importance", key=key)
    _require(not how.group_size or (is_plain and how.rotation == "none"), "quant.group_size", key=key)


def _check_own_formats(cfg: Config) -> None:
    given, named = [t.name for t in techniques(cfg) if t.number_format() is not None], format_keys(cfg.quant)
    for name in given:
        _require(name in named.values(), "format.unnamed", name=name)
    for key, name in named.items():
        _require(name in given or name not in technique_settings(), "format.unknown", key=key, name=name)
    for key, how in tensor_classes(cfg.quant).items():
        is_plain = how.rounding == "nearest" and how.rotation == "none" and not how.group_size
        _require(how.format not in given or is_plain, "quant.own_format", key=key, how=how)


def _check_names(cfg: Config) -> None:
    roundings = {"nearest", *(how.rounding for how in tensor_classes(cfg.quant).values())}
    for pattern, rule in cfg.quant.by_name.items():
        key = f"quant.by_name.{pattern}"
        rule = rule if isinstance(rule, dict) else {"format": rule}
        unknown = [name for name in rule if name not in BY_NAME]
        _require(not unknown, "by_name.unknown", key=key, unknown=", ".join(unknown), known=", ".join(BY_NAME))
        _require("format" in rule, "by_name.format", key=key)
        check_fields(from_dict(TensorQuant, rule), f"{key}.", [f"{key}.format"] if rule["format"] in cfg.tech else ())
        rounding = rule.get("rounding", "nearest")
        _require(rounding in roundings, "by_name.rounding", key=key, rounding=rounding)


def _check_fit(cfg: Config) -> None:
    for key, how in tensor_classes(cfg.quant).items():
        is_moved = how.clip in ("std", "matrix_std") or how.format not in (*INTEGER_FORMATS, "ternary")
        _require(is_moved, "quant.fit_clip", key=key, how=how)
    _require(not cfg.quant.prune.to_fit, "prune.fit")


def _check_codec(cfg: Config) -> None:
    if cfg.quant.codec == "context":
        _require(not cfg.quant.layout, "codec.layout")
        return
    low, high = CODEC_LEVELS[cfg.quant.codec]
    _require(low <= cfg.quant.codec_level <= high, "codec.level", cfg=cfg, low=low, high=high)


def _check_techniques(cfg: Config) -> None:
    chosen = techniques(cfg)
    for technique in chosen:
        for other in technique.requires:
            _require(other in cfg.tech, "tech.requires", name=technique.name, other=other)
        for other in technique.conflicts:
            _require(other not in cfg.tech, "tech.conflicts", name=technique.name, other=other)
        check_fields(technique, f"tech.{technique.name}.")
        technique.check(cfg)
        has_order = technique.effect == CHANGES_ORDER
        _require(not has_order or cfg.data.loader in ("shuffled", "packed_shuffled"), "tech.order", name=technique.name)
    orders = [technique.name for technique in chosen if technique.effect == CHANGES_ORDER]
    _require(len(orders) < 2, "tech.orders", names=listed(orders))
    routes = [technique.name for technique in chosen if technique.routes(cfg)]
    _require(len(routes) < 2, "tech.routes", names=" and ".join(routes))


def warnings(cfg: Config) -> list[str]:
    """Return sentences about combinations that run but are unlikely to be meant."""
    sentences = [sentence for technique in techniques(cfg) for sentence in technique.warnings(cfg)]
    if not cfg.budget.train_seconds and cfg.schedule.iterations >= MANY_STEPS:
        sentences.append(SENTENCES["note.no_clock"].format(cfg=cfg))
    if uses_trellis(cfg.quant) and cfg.quant.codec != "context":
        sentences.append(SENTENCES["note.trellis"].format(cfg=cfg))
    own = round(OptimConfig.matrix_lr * cfg.scale.rate_ratio, 12)
    # A technique may have steps of another size, and the record's presets were each tuned.
    is_tuned = cfg.scale.rate_ratio != 1 and not changes_steps(cfg)
    if is_tuned and not own / FAR_RATE <= cfg.optim.matrix_lr <= own * FAR_RATE:
        sentences.append(SENTENCES["note.rate"].format(cfg=cfg, own=own))
    return sentences + [SENTENCES["note.unread"].format(key=key) for key in _unread_settings(cfg)]


def _unread_settings(cfg: Config) -> list[str]:
    """Return the settings that no line of their idea names behind a dot or in quotes."""
    unread = []
    for name in [name for name in cfg.tech if name in ideas()]:
        modules = [path for files in ideas()[name].code().values() for path in files if path.suffix == ".py"]
        code = "".join(path.read_text(encoding="utf-8") for path in modules)
        # Settings that are read all at once have no name there.
        if not re.search(r"asdict|astuple|\bfields\(|\bvars\(|__dict__", code):
            names = [field.name for field in dataclasses.fields(cfg.tech[name])]
            unread += [f"tech.{name}.{n}" for n in names if not re.search(rf"\.{n}\b|[\"']{n}[\"']", code)]
    return unread
