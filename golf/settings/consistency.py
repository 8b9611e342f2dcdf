"""Checks across fields, each with a sentence that says what to change. Choices and ranges stand at the fields."""

from __future__ import annotations

import re

from golf.errors import GolfError
from golf.registry import CHANGES_ORDER, CHANGES_SCORE
from golf.settings.config import (
    Config,
    ModelConfig,
    eval_seq_len,
    from_dict,
    has_stages,
    is_packed,
    micro_batch_tokens,
    mlp_hidden,
    stages,
    techniques,
    training_seconds,
    ttt_recipe,
    world_size,
)
from golf.settings.fields import check_fields
from golf.settings.names import technique_settings
from golf.settings.quant_config import (
    BY_NAME,
    INTEGER_FORMATS,
    QuantConfig,
    TensorQuant,
    format_keys,
    tensor_classes,
    uses_gptq,
    uses_trellis,
)
from golf.words import counted, listed

CODEC_LEVELS = {"zlib": (0, 9), "zstd": (1, 22), "lzma": (0, 9), "brotli": (0, 11)}
POLAR_EXPRESS_STEPS = 5  # triples of coefficients in training/optim/muon.py
MANY_STEPS = 10_000  # a run without a clock is named from so many on
MAX_VOCAB_SIZE = 65_536  # tokens are stored as uint16


def _require(ok: bool, sentence: str) -> None:
    if not ok:
        raise GolfError(sentence)


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
    _require(
        cfg.data.loader == "sequential" or not cfg.data.shard_order,
        f"data.loader={cfg.data.loader} mixes all shards, so data.shard_order has no meaning: drop one of the two.",
    )
    _check_sliding(cfg)
    if cfg.eval.ttt.method != "off":
        _check_ttt(cfg)
    _check_predictors(cfg)
    if cfg.eval.tilt.method != "off":
        _check_tilt(cfg)
    _require(
        re.fullmatch(r"[\w.+-]+", cfg.name) is not None,
        f"name={cfg.name} names a folder: use letters, digits and . _ + - only.",
    )


def check_values(cfg: Config) -> None:
    """Raise `GolfError` for a value that its field does not allow, in the groups that are in use."""
    # First, because data=own leaves the vocabulary at 0 and this sentence says where to get it from.
    _require(
        bool(cfg.data.path and cfg.data.tokenizer_path and cfg.data.vocab_size > 0),
        f"data={cfg.data.name} needs data.path, data.tokenizer_path and data.vocab_size: "
        "`golf data tokenize` prints all three for your own text.",
    )
    # Public command lines carry zeros in groups that are switched off, which do no harm.
    off = {"eval.ttt": cfg.eval.ttt.method == "off", "track": cfg.track.backend == "none"}
    own = [key for key, name in format_keys(cfg.quant).items() if name in technique_settings()]
    check_fields(cfg, unused=[*(group for group, is_off in off.items() if is_off), *own])


def check_model(m: ModelConfig) -> None:
    """Raise `GolfError` for a shape that cannot be built."""
    check_fields(m, "model.")
    _check_shape(m)


def _check_shape(m: ModelConfig) -> None:
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


def _check_batch(cfg: Config) -> None:
    d, nproc, nodes = cfg.data, cfg.launch.nproc, cfg.launch.nodes
    machines = f" on {nodes} nodes" if nodes > 1 else ""
    _require(
        d.micro_batches % (nproc * nodes) == 0,
        f"launch.nproc={nproc}{machines} does not divide "
        f"data.micro_batches={d.micro_batches}: the ranks have to share the micro-batches of a step evenly.",
    )
    unit = d.micro_batches * d.train_seq_len
    _require(
        d.train_batch_tokens % unit == 0,
        f"data.train_batch_tokens={d.train_batch_tokens} is not a multiple of micro_batches × train_seq_len = {unit}: "
        f"the nearest that is: {max(1, round(d.train_batch_tokens / unit)) * unit}.",
    )
    seq_len = eval_seq_len(cfg)
    _require(
        cfg.eval.val_batch_tokens >= d.micro_batches * seq_len,
        f"eval.val_batch_tokens={cfg.eval.val_batch_tokens} holds less than one sequence of {seq_len} tokens per "
        f"micro-batch: set it to {d.micro_batches * seq_len} or more.",
    )


def _check_stages(cfg: Config) -> None:
    all_stages, longest = stages(cfg), cfg.data.train_seq_len
    ends = [stage.until for stage in all_stages]
    _require(
        ends == sorted(set(ends)) and ends[-1] == 1,
        f"schedule.stages end at {listed([f'{end:g}' for end in ends])}: let each `until` be above the one before it "
        "and leave it out in the last stage, which ends with the run.",
    )
    lengths = [stage.seq_len for stage in all_stages]
    _require(
        max(lengths) == longest,
        f"the longest sequences of schedule.stages have {max(lengths)} tokens and data.train_seq_len is {longest}: "
        f"set data.train_seq_len={max(lengths)}, which loaders read and stages cut.",
    )
    # Only the sequential loader's micro-batch is one stretch of text; elsewhere a row is cut.
    row = micro_batch_tokens(cfg) if cfg.data.loader == "sequential" else longest
    step = micro_batch_tokens(cfg) * world_size(cfg)
    for number, stage in enumerate(all_stages):
        _require(
            is_packed(cfg) or row % stage.seq_len == 0,
            f"schedule.stages[{number}].seq_len={stage.seq_len} does not divide the {row} tokens that it cuts: "
            "choose a length that does, or another micro-batch.",
        )
        _require(
            stage.batch_tokens % step == 0,
            f"schedule.stages[{number}].batch_tokens={stage.batch_tokens} is not a multiple of {step}, the tokens that "
            f"{counted(world_size(cfg), 'rank')} read at once: the nearest that is: "
            f"{max(1, round(stage.batch_tokens / step)) * step}.",
        )


def _check_sliding(cfg: Config) -> None:
    e, seq_len = cfg.eval, eval_seq_len(cfg)
    _require(
        e.stride < seq_len,
        f"eval.stride={e.stride} has to be below the sequence length of {seq_len}: choose 1 to {seq_len - 1}, "
        "or 0 for no sliding score.",
    )


def _check_documents(cfg: Config) -> None:
    _require(
        not is_packed(cfg) or cfg.model.within_documents,
        f"data.loader={cfg.data.loader} packs documents into rows of {cfg.data.train_batch_tokens} / "
        f"{cfg.data.micro_batches} tokens, over which attention has to stop: set model.within_documents=true.",
    )
    _require(
        not cfg.model.within_documents or cfg.eval.documents,
        "model.within_documents=true trains without other documents in view, so scores have to be taken so: set "
        "eval.documents=true.",
    )
    for technique in techniques(cfg):
        _require(
            not cfg.model.within_documents or technique.separates_documents() is not False,
            f"tech {technique.name} mixes tokens across documents, which model.within_documents=true keeps apart: "
            f"set tech.{technique.name}.mask_bos=true or drop it.",
        )


def _check_ttt(cfg: Config) -> None:
    ttt, recipe, stride = cfg.eval.ttt, ttt_recipe(cfg), cfg.eval.stride
    _require(
        ttt.freeze_blocks <= cfg.model.num_layers,
        f"eval.ttt.freeze_blocks={ttt.freeze_blocks} is not among the model's {cfg.model.num_layers} blocks.",
    )
    if ttt.method == "lora":
        _require(
            recipe.chunk_tokens <= recipe.seq_len,
            f"eval.ttt.chunk_tokens={recipe.chunk_tokens} does not fit into windows of {recipe.seq_len} tokens: "
            "lower it or raise eval.ttt.seq_len.",
        )
        limits, sizes = [pair[0] for pair in ttt.lora_chunks if pair], [pair[-1] for pair in ttt.lora_chunks if pair]
        _require(
            all(len(pair) == 2 for pair in ttt.lora_chunks)
            and limits == sorted(set(limits))
            and all(1 <= size <= recipe.seq_len for size in sizes),
            f"eval.ttt.lora_chunks={ttt.lora_chunks} has to be pairs of a length and the tokens of its chunks, lengths "
            f"ascending, chunks of 1 to {recipe.seq_len}: write [[256, 8], [2000, 24]].",
        )
        _require(len(ttt.lora_targets) > 0, "eval.ttt.lora_targets is empty: name what gets factors, or use sgd.")
        _check_phases(cfg, recipe.seq_len)
        return
    for key, unit in (("the sequence length", recipe.seq_len), ("eval.stride", stride or recipe.seq_len)):
        _require(
            recipe.chunk_tokens % unit == 0,
            f"eval.ttt.chunk_tokens={recipe.chunk_tokens} is not a multiple of {key}, {unit}: the nearest that is: "
            f"{max(1, round(recipe.chunk_tokens / unit)) * unit}.",
        )


def _check_predictors(cfg: Config) -> None:
    mixed = [f"tech {technique.name}" for technique in techniques(cfg) if technique.effect == CHANGES_SCORE]
    mixed += ["eval.tilt"] if cfg.eval.tilt.method != "off" else []
    _require(len(mixed) < 2, f"{listed(mixed)} are both mixed into the scores: keep one of them.")
    _require(
        not mixed or cfg.eval.stride > 0 or cfg.eval.ttt.method == "lora",
        f"{''.join(mixed)} is mixed into sliding scores and those of eval.ttt.method=lora: set eval.stride, or that "
        "method.",
    )


def _check_tilt(cfg: Config) -> None:
    tilt = cfg.eval.tilt
    _require(
        len(tilt.contexts) == len(tilt.least_shares) == len(tilt.least_counts),
        "eval.tilt.contexts, least_shares and least_counts have different lengths: give one of each for every context.",
    )
    _require(
        tilt.hedge == 0 or cfg.eval.ttt.method == "lora",
        "eval.tilt.hedge weighs within documents, as eval.ttt.method=lora scores them: set that method, or hedge=0.",
    )


def _check_phases(cfg: Config, seq_len: int) -> None:
    phases = cfg.eval.ttt.lora_phases
    if not phases.count:
        return
    _require(
        cfg.eval.documents,
        "eval.ttt.lora_phases trains on documents that are laid end to end: set eval.documents=true.",
    )
    _require(
        phases.chunk_tokens >= seq_len,
        f"eval.ttt.lora_phases.chunk_tokens={phases.chunk_tokens} holds no sequence of {seq_len} tokens: raise it.",
    )
    _require(
        phases.freeze_blocks <= cfg.model.num_layers,
        f"eval.ttt.lora_phases.freeze_blocks={phases.freeze_blocks} is not among the model's {cfg.model.num_layers} "
        "blocks.",
    )


def _check_device(cfg: Config) -> None:
    launch = cfg.launch
    _require(
        launch.device != "mps" or (launch.nproc == launch.nodes == 1 and launch.compile in ("auto", "off")),
        "launch.device=mps runs one rank without compiling: use launch.nproc=1 launch.compile=off.",
    )
    _require(
        cfg.model.attention == "sdpa" or {cfg.model.compute_dtype, cfg.eval.dtype, launch.device} == {"bf16", "cuda"},
        f"model.attention={cfg.model.attention} needs a GPU and bf16 throughout: use model.attention=sdpa here.",
    )


def _check_muon(cfg: Config) -> None:
    o, taper = cfg.optim, cfg.schedule.muon_wd_taper_final
    _require(
        o.muon_coefficients == "quintic" or o.muon_backend_steps <= POLAR_EXPRESS_STEPS,
        f"optim.muon_coefficients=polar_express has coefficients for {POLAR_EXPRESS_STEPS} iterations: "
        f"set optim.muon_backend_steps={POLAR_EXPRESS_STEPS} or fewer.",
    )
    _require(
        taper == 1.0 or o.muon_wd > 0,
        f"schedule.muon_wd_taper_final={taper:g} lets a weight decay fall that is 0: "
        "set optim.muon_wd, or leave the factor at 1.",
    )
    shares, factors = cfg.schedule.weight_decay_shares, cfg.schedule.weight_decay_factors
    _require(
        len(shares) == len(factors) and shares == sorted(set(shares)) and min(factors, default=0) >= 0,
        f"schedule.weight_decay_shares={shares} and weight_decay_factors={factors} do not go together: give ascending "
        "shares of the run and a factor of 0 or more for each, such as [0.4,0.85,1] and [1,0.5,1.75].",
    )
    _require(
        o.muon == "parallel" or not o.clip_before_reduction,
        f"optim.clip_before_reduction=true needs gradients that the backward pass has not averaged, and "
        f"optim.muon={o.muon} gets averages: set optim=parallel_muon, or optim.clip_before_reduction=false.",
    )


def _check_quant(cfg: Config) -> None:
    quant = cfg.quant
    _check_own_formats(cfg)
    for key, how in tensor_classes(quant).items():
        _require(
            how.format != "ternary" or how.clip != "quantile",
            f"quant.{key}.format=ternary with quant.{key}.clip=quantile would round nearly every weight to zero: "
            f"set quant.{key}.clip=absmean.",
        )
        _require(
            how.columns == 0 or how.rounding != "nearest",
            f"quant.{key}.columns={how.columns:g} needs the inputs of the layers: set quant.{key}.rounding=gptq.",
        )
        _require(
            how.finer_columns == 0 or (how.rounding == "gptq" and how.rotation == "none" and how.columns == 0),
            f"quant.{key}.finer_columns needs plain GPTQ and columns that are the layer's inputs: set "
            f"quant.{key}.rounding=gptq, quant.{key}.rotation=none and quant.{key}.columns=0 with it.",
        )
        _require(
            how.clip_importance == 0 or how.rounding != "nearest",
            f"quant.{key}.clip_importance follows the Hessian of GPTQ: set quant.{key}.rounding=gptq with it.",
        )
        _require(
            not how.group_size or (how.rounding == "nearest" and how.rotation == "none"),
            f"quant.{key}.group_size gives scales to parts of rows, which rotation and GPTQ do not know: set "
            f"quant.{key}.rounding=nearest and quant.{key}.rotation=none with it.",
        )
    _check_names(cfg)
    _check_codec(quant)
    if quant.sensitive.top > 0:
        _require(
            uses_gptq(quant),
            "quant.sensitive goes by the Hessians of GPTQ: set quant.attn.rounding=gptq with it, or "
            "quant.sensitive.top=0.",
        )
        in_training = [name for name in ("fake_quant", "soft_round") if name in cfg.tech]
        _require(
            not in_training,
            f"quant.sensitive chooses formats after the training, which {', '.join(in_training)} needs in it: drop "
            "one of them.",
        )
    _require(
        uses_gptq(quant) or not quant.gptq.drift, "quant.gptq.drift corrects GPTQ: set quant.mlp.rounding=gptq, too."
    )
    among_all = quant.prune.fraction or quant.prune.to_fit or quant.sensitive.top or quant.clip_sensitivity
    _require(
        not (quant.gptq.drift and among_all),
        "quant.gptq.drift rounds layer by layer, and pruning and formats by sensitivity choose among all layers: leave "
        "quant.prune.fraction=0, quant.prune.to_fit=false, quant.sensitive.top=0 and quant.clip_sensitivity=0 with it.",
    )
    _require(
        not (quant.prune.to_fit and quant.prune.fraction),
        "quant.prune.to_fit finds the share itself: leave quant.prune.fraction=0 with it.",
    )
    if quant.fit == "cap":
        _check_fit(quant)
    _require(
        not uses_trellis(quant) or quant.trellis.states in (4, 8, 16),
        f"quant.trellis.states={quant.trellis.states} is not known: choose 4, 8 or 16.",
    )
    _require(
        not (uses_trellis(quant) and (quant.prune.to_fit or quant.prune.fraction)),
        "A code that is set to zero moves all later ones of its row on a trellis: leave quant.prune.fraction=0 and "
        "quant.prune.to_fit=false with rounding=trellis.",
    )
    if quant.tune.steps > 0:
        _require(not quant.prune.to_fit, "quant.tune takes bytes that quant.prune.to_fit has filled: set one of them.")
        own_text = uses_gptq(quant) and quant.calibration.source == "self_generated"
        _require(not own_text, "quant.tune trains after the calibration: set quant.calibration.source=train with it.")
    if cfg.budget.train_seconds:
        _require(
            training_seconds(cfg) > 0,
            f"quant.calibration.reserve_seconds={quant.calibration.reserve_seconds:g} and quant.tune.reserve_seconds="
            f"{quant.tune.reserve_seconds:g} leave nothing of the {cfg.budget.train_seconds:g} s to train in: reserve "
            "less.",
        )


def _check_own_formats(cfg: Config) -> None:
    given, named = [t.name for t in techniques(cfg) if t.number_format() is not None], format_keys(cfg.quant)
    for name in given:
        _require(name in named.values(), f"No setting names the format of tech {name}: set quant.attn.format={name}.")
    for key, name in named.items():
        known = name in given or name not in technique_settings()
        _require(known, f"{key}={name} is the format of no technique of this run: select it with +tech={name}.")
    for key, how in tensor_classes(cfg.quant).items():
        _require(
            how.format not in given or (how.rounding == "nearest" and how.rotation == "none" and not how.group_size),
            f"quant.{key}.format={how.format} rounds, scales and groups by itself: set quant.{key}.rounding=nearest, "
            f"quant.{key}.rotation=none and quant.{key}.group_size=0 with it.",
        )


def _check_names(cfg: Config) -> None:
    quant = cfg.quant
    roundings = {"nearest", *(how.rounding for how in tensor_classes(quant).values())}
    for pattern, rule in quant.by_name.items():
        key = f"quant.by_name.{pattern}"
        rule = rule if isinstance(rule, dict) else {"format": rule}
        unknown = [name for name in rule if name not in BY_NAME]
        _require(not unknown, f"{key} cannot set {', '.join(unknown)}: choose from {', '.join(BY_NAME)}.")
        _require("format" in rule, f"{key} sets no format: add format:int8 or another one.")
        check_fields(from_dict(TensorQuant, rule), f"{key}.", [f"{key}.format"] if rule["format"] in cfg.tech else ())
        _require(
            rule.get("rounding", "nearest") in roundings,
            f"{key}.rounding={rule.get('rounding')} needs inputs, which no class of tensors collects: set "
            f"quant.other.rounding={rule.get('rounding')}, too.",
        )


def _check_fit(quant: QuantConfig) -> None:
    for key, how in tensor_classes(quant).items():
        _require(
            how.clip in ("std", "matrix_std") or how.format not in (*INTEGER_FORMATS, "ternary"),
            f"quant.fit=cap moves steps, which quant.{key}.clip={how.clip} takes from the largest weights: "
            f"set quant.{key}.clip=std.",
        )
    _require(not quant.prune.to_fit, "quant.fit=cap fills the cap itself: leave quant.prune.to_fit=false with it.")


def _check_codec(quant: QuantConfig) -> None:
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
        check_fields(technique, f"tech.{technique.name}.")
        technique.check(cfg)
        _require(
            technique.effect != CHANGES_ORDER or cfg.data.loader in ("shuffled", "packed_shuffled"),
            f"tech {technique.name} puts in order what data.loader=shuffled or packed_shuffled reads: choose one.",
        )
    orders = [technique.name for technique in techniques(cfg) if technique.effect == CHANGES_ORDER]
    _require(len(orders) < 2, f"tech {listed(orders)} both put the training text in order: keep one of them.")
    ordering = [technique.name for technique in techniques(cfg) if technique.routes(cfg)]
    _require(
        len(ordering) < 2,
        f"{' and '.join(ordering)} each give the blocks an order of their own: drop all but one.",
    )


def warnings(cfg: Config) -> list[str]:
    """Return sentences about combinations that run but are unlikely to be meant."""
    found = [sentence for technique in techniques(cfg) for sentence in technique.warnings(cfg)]
    if not cfg.budget.train_seconds and cfg.schedule.iterations >= MANY_STEPS:
        found.append(
            f"no clock ends this run (budget.train_seconds=0): it makes all {cfg.schedule.iterations:,} steps of "
            "schedule.iterations"
        )
    if uses_trellis(cfg.quant) and cfg.quant.codec != "context":
        found.append(
            f"rounding=trellis is made for quant.codec=context, and this run has quant.codec={cfg.quant.codec}, under "
            "which it is stored larger: add quant.codec=context quant.layout=[]"
        )
    return found
