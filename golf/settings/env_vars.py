"""The public scripts' environment variables as overrides of this configuration.

Public experiments are exchanged as command lines: `MATRIX_LR=0.06 … torchrun … train_gpt.py`. `translate` returns the
overrides of the same experiment, the variables without effect in those scripts, and the unknown ones.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from golf.errors import GolfError
from golf.settings.env_techniques import is_off, is_zero, technique_overrides, variables_of_techniques
from golf.settings.quoting import quoted

BASE = ("model=9l", "scale=record")  # overrides for the public baseline's defaults
KEYS = {
    "DATA_PATH": "data.path",
    "TOKENIZER_PATH": "data.tokenizer_path",
    "RUN_ID": "name",
    "SEED": "seed",
    "VAL_BATCH_SIZE": "eval.val_batch_tokens",
    "VAL_LOSS_EVERY": "eval.val_loss_every",
    "TRAIN_LOG_EVERY": "launch.train_log_every",
    "ITERATIONS": "schedule.iterations",
    "WARMDOWN_ITERS": "schedule.warmdown_iters",
    "WARMDOWN_LAST_FRAC": "schedule.warmdown_fraction",
    "WARMDOWN_FRAC": "schedule.warmdown_fraction",
    "MIN_LR": "schedule.min_lr",
    "WARMUP_STEPS": "schedule.warmup_steps",
    "TRAIN_BATCH_TOKENS": "data.train_batch_tokens",
    "TRAIN_SEQ_LEN": "data.train_seq_len",
    "EVAL_SEQ_LEN": "eval.seq_len",
    "MAX_WALLCLOCK_SECONDS": "budget.train_seconds",
    "QK_GAIN_INIT": "model.qk_gain_init",
    "VOCAB_SIZE": "data.vocab_size",
    "NUM_LAYERS": "model.num_layers",
    "NUM_KV_HEADS": "model.num_kv_heads",
    "MODEL_DIM": "model.model_dim",
    "NUM_HEADS": "model.num_heads",
    "MLP_MULT": "model.mlp_mult",
    "MLP_HIDDEN": "model.mlp_hidden",
    "TIE_EMBEDDINGS": "model.tie_embeddings",
    "TIED_EMBED_INIT_STD": "model.tied_embed_init_std",
    "ROPE_BASE": "model.rope_base",
    "LOGIT_SOFTCAP": "model.logit_softcap",
    "EMBED_LR": "optim.embed_lr",
    "HEAD_LR": "optim.head_lr",
    "TIED_EMBED_LR": "optim.tied_embed_lr",
    "MATRIX_LR": "optim.matrix_lr",
    "SCALAR_LR": "optim.scalar_lr",
    "MUON_MOMENTUM": "optim.muon_momentum",
    "MUON_MOMENTUM_WARMUP_START": "optim.muon_momentum_warmup_start",
    "MUON_MOMENTUM_WARMUP_STEPS": "optim.muon_momentum_warmup_steps",
    "MUON_BACKEND_STEPS": "optim.muon_backend_steps",
    "MUON_WD": "optim.muon_wd",
    "MUON_WEIGHT_DECAY": "optim.muon_wd",
    "ADAM_WD": "optim.adam_wd",
    "ADAM_WEIGHT_DECAY": "optim.adam_wd",
    "EMBED_WD": "optim.embed_wd",
    "WD_TAPER_START_FRAC": "schedule.muon_wd_taper_start",
    "WD_TAPER_FINAL_MULT": "schedule.muon_wd_taper_final",
    "BETA1": "optim.beta1",
    "BETA2": "optim.beta2",
    "ADAM_EPS": "optim.adam_eps",
    "GRAD_CLIP_NORM": "optim.grad_clip_norm",
    "EVAL_STRIDE": "eval.stride",
    "EVAL_BATCH_SEQS": "eval.stride_batch_seqs",
    "TTT_LR": "eval.ttt.lr",
    "TTT_EPOCHS": "eval.ttt.epochs",
    "TTT_CHUNK_TOKENS": "eval.ttt.chunk_tokens",
    "TTT_FREEZE_BLOCKS": "eval.ttt.freeze_blocks",
    "TTT_MOMENTUM": "eval.ttt.momentum",
    "TTT_BATCH_SEQS": "eval.ttt.batch_seqs",
    "TTT_GRAD_CLIP": "eval.ttt.grad_clip",
    "TTT_LORA_RANK": "eval.ttt.lora_rank",
    "TTT_LORA_LR": "eval.ttt.lr",
    "TTT_CHUNK_SIZE": "eval.ttt.chunk_tokens",
    "TTT_EVAL_SEQ_LEN": "eval.ttt.seq_len",
    "TTT_BATCH_SIZE": "eval.ttt.batch_seqs",
    "EMBED_CLIP_SIGMAS": "quant.embed.clip_k",
    "ATTN_CLIP_SIGMAS": "quant.attn.clip_k",
    "MLP_CLIP_SIGMAS": "quant.mlp.clip_k",
    "GPTQ_RESERVE_SECONDS": "quant.calibration.reserve_seconds",
    "TTT_LORA_ALPHA": "eval.ttt.lora_alpha",
    "TTT_BETA1": "eval.ttt.lora_beta1",
    "TTT_BETA2": "eval.ttt.lora_beta2",
    "TTT_WEIGHT_DECAY": "eval.ttt.lora_weight_decay",
    "TTT_GRAD_STEPS": "eval.ttt.lora_steps",
    "PHASED_TTT_PREFIX_DOCS": "eval.ttt.lora_phases.documents",
    "PHASED_TTT_NUM_PHASES": "eval.ttt.lora_phases.count",
    "GLOBAL_TTT_LR": "eval.ttt.lora_phases.lr",
    "GLOBAL_TTT_MOMENTUM": "eval.ttt.lora_phases.momentum",
    "GLOBAL_TTT_EPOCHS": "eval.ttt.lora_phases.epochs",
    "GLOBAL_TTT_CHUNK_TOKENS": "eval.ttt.lora_phases.chunk_tokens",
    "GLOBAL_TTT_BATCH_SEQS": "eval.ttt.lora_phases.batch_seqs",
    "GLOBAL_TTT_GRAD_CLIP": "eval.ttt.lora_phases.grad_clip",
    "LQER_RANK": "quant.lqer.rank",
    "LQER_TOP_K": "quant.lqer.top",
}
SWITCHES = {  # variables that choose one value if they are not off
    "CASEOPS_ENABLED": "data=fineweb_sp8192_caseops",
    "FP16_EMBED_EXPORT": "quant=fp16_embed",
    "MUON_ROW_NORMALIZE": "optim.muon_row_normalize=true",
    "POLAR_EXPRESS": "optim.muon_coefficients=polar_express",
    "USE_POLAR_EXPRESS": "optim.muon_coefficients=polar_express",
}
LORA_ONLY = {"TTT_LORA_RANK", "TTT_LORA_LR", "TTT_CHUNK_SIZE", "TTT_EVAL_SEQ_LEN", "TTT_BATCH_SIZE"}
HESSIAN_CLIP = "HESSIAN_CLIP_LAMBDA"  # of scripts that round by GPTQ with clips in deviations (record 04-06)
LORA_TARGETS = {"TTT_K_LORA": "k", "TTT_O_LORA": "o", "TTT_MLP_LORA": "mlp"}
# Variables that only the scripts from 10 April on have, whose low-rank factors are others than those of 17 March.
APRIL_LORA = {
    *(name for name, key in KEYS.items() if key.startswith(("eval.ttt.lora_phases", "eval.ttt.lora_beta"))),
    *("TTT_LORA_ALPHA", "TTT_WEIGHT_DECAY", "TTT_GRAD_STEPS", "TTT_WARM_START_A", *LORA_TARGETS),
}
# The defaults of the script of 27 April, which the records before it had in part.
APRIL_DEFAULTS = {
    "eval": "ttt_phased",
    "eval.ttt.lora_windows": "document",
    "eval.ttt.lora_queue": "upstream",
    "eval.ttt.lora_rank": "96",
    "eval.ttt.lora_weight_decay": "1.0",
    "eval.ttt.lora_beta2": "0.999",
    "eval.ttt.lora_phases.count": "1",
    "eval.ttt.lora_phases.documents": "2000",
    "eval.ttt.lora_phases.order": "upstream",
}
# Of scripts that correct rounding with low-rank factors; the bits are those of factors with a scale for every row.
LQER = {"LQER_ENABLED", "LQER_ASYM_ENABLED", "LQER_FACTOR_BITS", "LQER_ASYM_GROUP"}
LQER_QUANT, SDCLIP = "quant=sdclip_lqer_asym", "quant=sdclip_gptq"
CODECS = {"brotli": ("brotli", 11), "pergroup": ("brotli", 11), "lzma": ("lzma", 9), "zstd": ("zstd", 22)}
FP16_GATES = "quant.by_name={*attn_gate.weight:fp16}"
GATES = "GATED_ATTN_QUANT_GATE"  # stores the gates as int8 by each row's maximum
# Values of variables without a counterpart that are what is done here.
SAME_HERE = {
    "MATRIX_BITS=6",
    "GPTQ_ENABLED=1",
    "SLIDING_WINDOW_ENABLED=1",
    "PARALLEL_FINAL_LANE=mean",
    "TTT_OPTIMIZER=adam",
    "GLOBAL_TTT_RESPECT_DOC_BOUNDARIES=1",
    "ATTN_OUT_GATE_SRC=proj",
    "MATRIX_CLIP_SIGMAS=12.85",
}
VOCABULARIES = ("4096", "8192")  # of FineWeb's other data sets
OTHERS = {
    "TTT_ENABLED",
    "TTT_WARM_START_A",
    "EMBED_BITS",
    "COMPRESSOR",
    GATES,
    *LORA_TARGETS,
    *LQER,
}  # known to `_assign` by their names
SGD_ON, LORA_ON = "eval.ttt.method=sgd", "eval.ttt.method=lora"
SGD_STRIDE = 64  # default of EVAL_STRIDE in the scripts that have TTT_ENABLED, in tokens
ABSENT_AT_ZERO = {"MLP_HIDDEN"}  # variables whose 0 means "not given" in the scripts
OFF_AT_ZERO = {  # variables whose 0 or -1 needs no override, because the feature is off here by default
    *("MTP_NUM_HEADS", "DTG_ENABLED", "USE_GPTQ", "PRUNE_PCT"),
    *("PRUNE_RATIO", "INT4_LAYERS", HESSIAN_CLIP),
}
NEVER_READ = {"MUON_BETA2", "LATE_QAT", "ROPE_TRAIN_SEQ_LEN"}  # variables of public commands that no script reads
LATE_QAT = {"LATE_QAT_THRESHOLD", "QAT_THRESHOLD"}  # of the scripts' late QAT, unless soft rounding is selected
NEVER_RAN = (
    "the public scripts up to PR #593 compiled late QAT away, so it never ran; tech.fake_quant.lr_threshold runs it"
)
COLLECTED_ONLY = "beside EMA the public scripts collect this average and do not use it"
NOT_THE_MODEL = ("DATA_PATH", "TOKENIZER_PATH", "RUN_ID", "SEED", "VAL_BATCH_SIZE", "VAL_LOSS_EVERY", "TRAIN_LOG_EVERY")
# Variables of files, ranks and logs, and of speed alone.
NOT_SETTINGS = re.compile(
    r"\w*(_DIR|_PATH|_FILES|_FILE|RANK|WORLD_SIZE|_LOG_EVERY|_ID)|VAL_BATCH_\w+|ARTIFACT_DIR|COMPILE_MODE|\w*EVAL_ONLY"
    r"|FUSED_\w+|\w*_NAME_PATTERNS|LOGFILE|DISTRIBUTED|IS_MAIN_PROCESS|GRAD_ACCUM_STEPS|SWA_\w+|TTT_EVAL_BATCHES|VAL_DOC_FRACTION"
)
MACHINE = re.compile(
    r"(NCCL|CUDA|OMP|MKL|TORCH|PYTORCH|PYTHON|TRITON|HF|WANDB|LD)_\w+|PATH|MASTER_(ADDR|PORT)|USE_FLASH_ATTN_INTERFACE"
)


@dataclass
class Structure:
    """Settings of what a script always has, without a variable to switch it."""

    variables: dict[str, str] = field(default_factory=dict)  # as if the command had set them
    overrides: list[str] = field(default_factory=list)
    techniques: list[str] = field(default_factory=list)  # those that no variable selects
    settings: list[str] = field(default_factory=list)  # overrides of techniques, good only where these are selected
    missing: list[str] = field(default_factory=list)  # parts that are there and are not among the overrides


@dataclass
class Translation:
    """Overrides for golf/train.py, and the variables that have none."""

    overrides: list[str] = field(default_factory=lambda: list(BASE))
    unknown: list[str] = field(default_factory=list)  # NAME=value of variables without a counterpart here
    without_effect: list[str] = field(default_factory=list)  # NAME=value (reason) of variables without effect upstream
    machine: list[str] = field(default_factory=list)  # NAME=value of variables about the machine, not the experiment
    techniques: dict[str, str] = field(default_factory=dict)  # variables of techniques, translated together at the end
    idle_defaults: list[str] = field(
        default_factory=list
    )  # NAME=value of a script's defaults for techniques not chosen
    inexpressible: list[str] = field(default_factory=list)  # NAME=default of variables that the script reads, not known
    lqer: dict[str, str] = field(default_factory=dict)  # variables of low-rank correction
    ttt: bool | None = None  # value of TTT_ENABLED; None if it is not set
    lora: bool = False  # True if a variable of the scripts with low-rank test-time training is set
    april_lora: dict[str, str] = field(default_factory=dict)  # variables of those from 10 April on


def translate(
    command_line: str,
    *,
    unread: Collection[str] = (),
    declared: Mapping[str, str | None] | None = None,
    structure: Structure | None = None,
) -> Translation:
    """Return the translation of a command line: its assignments and torchrun's number of processes.

    `declared` are the variables of the script that the command starts, where it is at hand, with its defaults, and
    `unread` those of them that it never uses, and `structure` is what it has without a variable. Raises `GolfError` if
    a quote is not closed.
    """
    result = Translation()
    given: dict[str, str] = {}
    for word in _words(command_line):
        if match := re.fullmatch(r"--nproc[-_]per[-_]node=(\d+)", word):
            result.overrides.append(f"launch.nproc={match[1]}")
        elif match := re.fullmatch(r"([A-Za-z_]\w*)=(.*)", word, re.DOTALL):
            name, value = match[1], match[2]
            if name in unread:
                result.without_effect.append(f"{name}={value} (the script declares it and never reads it)")
            elif declared is not None and name not in declared and not MACHINE.fullmatch(name):
                result.without_effect.append(f"{name}={value} (the script does not have it)")
            else:
                given[name] = value
                _assign(name, value, result)
    structure = structure or Structure()
    declared = declared or {}
    known = _known_defaults(declared, given, unread)
    for name, value in (structure.variables | known).items():
        _assign(name, value, result)
    result.inexpressible = _without_counterpart(declared, {*given, *known, *unread})
    _complete_data(result)
    _complete_quant(result, structure)
    _complete_ttt(result)
    _settle_late_qat(result)
    _settle_averages(result)
    overrides, idle = technique_overrides(result.techniques, structure.techniques)
    chosen = {override.split(".")[1] for override in overrides if override.startswith("tech.")} | _selected(overrides)
    result.overrides += overrides + [o for o in structure.settings if o.split(".")[1] in chosen]
    result.unknown += [text for text in idle if text.partition("=")[0] not in known]
    result.idle_defaults = [text for text in idle if text.partition("=")[0] in known]
    return result


def _known_defaults(
    declared: Mapping[str, str | None], given: Mapping[str, str], unread: Collection[str]
) -> dict[str, str]:
    """Return the script's defaults that have a counterpart here, without what belongs to a switch that is off."""
    defaults = {name: value for name, value in declared.items() if value and name not in (*given, *unread)}
    effective = {**defaults, **given}
    off = tuple(
        name.removesuffix("ENABLED") for name, value in effective.items() if name.endswith("_ENABLED") and is_off(value)
    )
    techniques = variables_of_techniques()
    return {
        name: value
        for name, value in defaults.items()
        if (name in KEYS or name in SWITCHES or name in techniques or name in OTHERS)
        and name not in NOT_THE_MODEL
        and not (off and name.startswith(off) and name != GATES)
    }


def _without_counterpart(declared: Mapping[str, str | None], settled: Collection[str]) -> list[str]:
    """Return the variables with a default that says something and has no counterpart here, as NAME=default."""
    techniques = variables_of_techniques()
    return [
        f"{name}={value}"
        for name, value in declared.items()
        if value
        and not is_off(value)
        and name not in settled
        and name not in OFF_AT_ZERO
        and name not in techniques
        and name not in KEYS
        and f"{name}={value}" not in SAME_HERE
        and not (NOT_SETTINGS.fullmatch(name) or MACHINE.fullmatch(name))
        and name not in NOT_THE_MODEL
    ]


def _selected(overrides: list[str]) -> set[str]:
    """Return the techniques of a `tech=[…]` among the overrides."""
    lists = [o.removeprefix("tech=[").removesuffix("]").split(",") for o in overrides if o.startswith("tech=[")]
    return {name for names in lists for name in names}


def _complete_data(result: Translation) -> None:
    """Select FineWeb's data set of the vocabulary, unless another one is selected."""
    sizes = {override.partition("=")[2] for override in result.overrides if override.startswith("data.vocab_size=")}
    if not any(override.startswith(("data=", "data.path=")) for override in result.overrides):
        result.overrides[:0] = [f"data=fineweb_sp{size}" for size in sizes if size in VOCABULARIES]


def _complete_ttt(result: Translation) -> None:
    """Select the method of test-time training, and add the sliding windows of the scripts with SGD."""
    overrides = result.overrides
    if result.april_lora and result.ttt is not False:
        _complete_april_lora(result)
        return
    # The first script with LoRA has no switch; in later ones TTT_ENABLED=0 switches it off.
    if result.lora and result.ttt is not False:
        overrides.append(LORA_ON)
    elif result.ttt:
        overrides.append(SGD_ON)
        if not any(o.startswith("eval.stride=") for o in overrides):
            overrides.append(f"eval.stride={SGD_STRIDE}")


def _complete_quant(result: Translation, structure: Structure) -> None:
    """Select the quantization of the scripts from 5 April on, and what they always have, before its settings."""
    base = list(structure.overrides)
    enabled = result.lqer.get("LQER_ENABLED")
    if LQER_QUANT in base and enabled is not None and is_off(enabled):
        base[base.index(LQER_QUANT)] = SDCLIP
    elif enabled is not None and not is_off(enabled) and LQER_QUANT not in base:
        base.insert(0, LQER_QUANT)
    if not any(o.startswith("quant=") for o in [*base, *result.overrides]) and any(
        override.startswith(("quant.embed.clip_k=", "quant.mlp.clip_k=")) for override in result.overrides
    ):
        base.insert(0, SDCLIP)
    if LQER_QUANT in base and is_off(result.lqer.get("LQER_ASYM_ENABLED", "1")):
        bits = result.lqer.get("LQER_FACTOR_BITS", "4")
        result.overrides += ["quant.lqer.factors=row", f"quant.lqer.format=int{quoted(bits)}"]
    # A quantization that a switch selects, such as that of the first scripts, takes the place of the script's own.
    result.overrides[:0] = [o for o in base if not (o.startswith("quant") and _has_quant(result.overrides))]


def _has_quant(overrides: list[str]) -> bool:
    return any(override.startswith("quant=") for override in overrides)


def _complete_april_lora(result: Translation) -> None:
    """Put the defaults of the scripts from 10 April on in front, and their switches behind."""
    given = {override.partition("=")[0] for override in result.overrides}
    result.overrides[:0] = [f"{key}={value}" for key, value in APRIL_DEFAULTS.items() if key not in given]
    off = {LORA_TARGETS[name] for name, value in result.april_lora.items() if name in LORA_TARGETS and is_off(value)}
    if off:
        left = [target for target in ("q", "k", "v", "o", "mlp", "head") if target not in off]
        result.overrides.append(f"eval.ttt.lora_targets=[{','.join(left)}]")
    if is_zero(result.april_lora.get("TTT_WARM_START_A", "1")):
        result.overrides.append("eval.ttt.lora_a=drawn")


def _settle_late_qat(result: Translation) -> None:
    """Name the thresholds of late QAT as without effect, unless soft rounding is selected and they are its own."""
    if not is_off(result.techniques.get("SOFT_ROUND_QAT", "0")):
        return
    for name in [name for name in result.techniques if name in LATE_QAT]:
        value = result.techniques.pop(name)
        if not is_off(value):
            result.without_effect.append(f"{name}={value} ({NEVER_RAN})")


def _settle_averages(result: Translation) -> None:
    """Name the variables of SWA as without effect beside EMA: the scripts collect its average and score EMA's."""
    if any(is_off(result.techniques.get(name, "0")) for name in ("EMA_ENABLED", "SWA_ENABLED")):
        return
    for name in [name for name in result.techniques if name.startswith("SWA_")]:
        result.without_effect.append(f"{name}={result.techniques.pop(name)} ({COLLECTED_ONLY})")


def _words(command_line: str) -> list[str]:
    try:
        # Public commands go on over several lines by a backslash at the end.
        words = shlex.split(command_line.replace("\\\n", " "), comments=True)
    except ValueError as error:
        raise GolfError(f"The command line cannot be read ({error}): check its quotes.") from error
    # torchrun accepts its option with a space as well.
    for i in range(len(words) - 1):
        if words[i] in ("--nproc_per_node", "--nproc-per-node"):
            words[i] += f"={words[i + 1]}"
    return words


def _assign(name: str, value: str, result: Translation) -> None:
    off = is_off(value)
    result.lora |= name in LORA_ONLY
    if name in APRIL_LORA:
        result.april_lora[name] = value
    if name in LQER:
        result.lqer[name] = value
    if name == "TTT_WARM_START_A" or name in LORA_TARGETS or name in LQER:
        return
    if name in variables_of_techniques():
        result.techniques[name] = value
    elif name in SWITCHES:
        result.overrides += [] if off else [SWITCHES[name]]
    elif name == HESSIAN_CLIP and not off:
        clips = [f"quant.{kind}.clip_importance={value}" for kind in ("attn", "mlp")]
        result.overrides += ["quant=sdclip_gptq", *clips]
    elif name == "TTT_ENABLED":
        result.ttt = not off
    elif name == "TIE_EMBEDDINGS":
        result.overrides.append(f"{KEYS[name]}={'false' if is_zero(value) else 'true'}")
    elif name == "COMPRESSOR" and value in CODECS:
        codec, level = CODECS[value]
        result.overrides += [f"quant.codec={codec}", f"quant.codec_level={level}"]
    elif name == GATES:
        result.overrides += [FP16_GATES] if off else []
    elif name == "EMBED_BITS":
        result.overrides.append(f"quant.embed.format=int{quoted(value)}")
    elif name == "SHARD_ORDER":
        if shards := re.findall(r"[^,\s]+", value):
            result.overrides.append(f"data.shard_order=[{','.join(map(quoted, shards))}]")
    elif name in KEYS and not (name in ABSENT_AT_ZERO and off):
        result.overrides.append(f"{KEYS[name]}={quoted(value)}")
    elif name in NEVER_READ:
        result.without_effect.append(f"{name}={value} (never read)")
    elif name in ABSENT_AT_ZERO or (name in OFF_AT_ZERO and off):
        return
    elif MACHINE.fullmatch(name):
        result.machine.append(f"{name}={value}")
    else:
        result.unknown.append(f"{name}={value}")
