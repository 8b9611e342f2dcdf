"""The public scripts' environment variables by name: the setting that each stands for, and those without one."""

from __future__ import annotations

import re

from golf.foreign.env_frontier import DEFAULTS as FRONTIER

# Settings whose variables are their names in capitals, by the variables' prefix and the settings' group.
SAME_NAME = {
    ("", "model"): "num_layers model_dim num_heads num_kv_heads mlp_mult mlp_hidden tie_embeddings tied_embed_init_std"
    " rope_base logit_softcap qk_gain_init",
    ("", "optim"): "embed_lr head_lr tied_embed_lr matrix_lr scalar_lr muon_momentum muon_momentum_warmup_start"
    " muon_momentum_warmup_steps muon_backend_steps muon_wd adam_wd embed_wd beta1 beta2 adam_eps grad_clip_norm",
    ("", "schedule"): "iterations warmdown_iters min_lr warmup_steps",
    ("", "data"): "tokenizer_path vocab_size train_batch_tokens train_seq_len",
    ("", "eval"): "val_loss_every",
    ("", "launch"): "train_log_every",
    ("TTT_", "eval.ttt"): "lr epochs chunk_tokens freeze_blocks momentum batch_seqs grad_clip lora_rank lora_alpha",
    ("GLOBAL_TTT_", "eval.ttt.lora_phases"): "lr momentum epochs chunk_tokens batch_seqs grad_clip",
}
KEYS = {
    **{
        f"{prefix}{name.upper()}": f"{group}.{name}"
        for (prefix, group), names in SAME_NAME.items()
        for name in names.split()
    },
    "DATA_PATH": "data.path",
    "RUN_ID": "name",
    "SEED": "seed",
    "VAL_BATCH_SIZE": "eval.val_batch_tokens",
    "WARMDOWN_LAST_FRAC": "schedule.warmdown_fraction",
    "WARMDOWN_FRAC": "schedule.warmdown_fraction",
    "EVAL_SEQ_LEN": "eval.seq_len",
    "MAX_WALLCLOCK_SECONDS": "budget.train_seconds",
    "MUON_WEIGHT_DECAY": "optim.muon_wd",
    "ADAM_WEIGHT_DECAY": "optim.adam_wd",
    "WD_TAPER_START_FRAC": "schedule.muon_wd_taper_start",
    "WD_TAPER_FINAL_MULT": "schedule.muon_wd_taper_final",
    "EVAL_STRIDE": "eval.stride",
    "EVAL_BATCH_SEQS": "eval.stride_batch_seqs",
    "TTT_LORA_LR": "eval.ttt.lr",
    "TTT_CHUNK_SIZE": "eval.ttt.chunk_tokens",
    "TTT_EVAL_SEQ_LEN": "eval.ttt.seq_len",
    "TTT_BATCH_SIZE": "eval.ttt.batch_seqs",
    "EMBED_CLIP_SIGMAS": "quant.embed.clip_k",
    "ATTN_CLIP_SIGMAS": "quant.attn.clip_k",
    "MLP_CLIP_SIGMAS": "quant.mlp.clip_k",
    "GPTQ_RESERVE_SECONDS": "quant.calibration.reserve_seconds",
    "TTT_BETA1": "eval.ttt.lora_beta1",
    "TTT_BETA2": "eval.ttt.lora_beta2",
    "TTT_WEIGHT_DECAY": "eval.ttt.lora_weight_decay",
    "TTT_GRAD_STEPS": "eval.ttt.lora_steps",
    "PHASED_TTT_PREFIX_DOCS": "eval.ttt.lora_phases.documents",
    "PHASED_TTT_NUM_PHASES": "eval.ttt.lora_phases.count",
    "LQER_RANK": "quant.lqer.rank",
    "LQER_TOP_K": "quant.lqer.top",
    "LQER_ASYM_GROUP": "quant.lqer.group",
    "SEQ_CHANGE_WARMUP_STEPS": "schedule.stage_warmup_steps",
}
SWITCHES = {  # variables that choose one value if they are not off
    "CASEOPS_ENABLED": "data=fineweb_sp8192_caseops",
    "FP16_EMBED_EXPORT": "quant=fp16_embed",
    "MUON_ROW_NORMALIZE": "optim.muon_row_normalize=true",
    "POLAR_EXPRESS": "optim.muon_coefficients=polar_express",
    "USE_POLAR_EXPRESS": "optim.muon_coefficients=polar_express",
}
LORA_ONLY = {"TTT_LORA_RANK", "TTT_LORA_LR", "TTT_CHUNK_SIZE", "TTT_EVAL_SEQ_LEN", "TTT_BATCH_SIZE"}
HESSIAN_CLIP = "HESSIAN_CLIP_LAMBDA"  # in scripts with GPTQ and clips in deviations (record 04-06)
LORA_TARGETS = {"TTT_K_LORA": "k", "TTT_O_LORA": "o", "TTT_MLP_LORA": "mlp"}
# Variables that only the scripts from 10 April on have, whose low-rank factors are others than those of 17 March.
APRIL_LORA = {
    *(name for name, key in KEYS.items() if key.startswith(("eval.ttt.lora_phases", "eval.ttt.lora_beta"))),
    *("TTT_MASK", "TTT_LOCAL_LR_MULT", "TTT_SHORT_SCORE_FIRST_ENABLED", "TTT_SHORT_SCORE_FIRST_STEPS"),
    *("TTT_LORA_ALPHA", "TTT_WEIGHT_DECAY", "TTT_GRAD_STEPS", "TTT_WARM_START_A", *LORA_TARGETS),
}
# Variables of quantization that need others beside them; the bits are those of low-rank factors with a scale a row.
QUANT = {"LQER_ENABLED", "LQER_ASYM_ENABLED", "LQER_FACTOR_BITS", "GPTQ_CALIBRATION_BATCHES"}
CODECS = {"brotli": ("brotli", 11), "pergroup": ("brotli", 11), "lzma": ("lzma", 9), "zstd": ("zstd", 22)}
FP16_GATES = "quant.by_name={*attn_gate.weight:fp16}"
GATES = "GATED_ATTN_QUANT_GATE"  # stores the gates as int8 by each row's maximum
# Values of variables without a counterpart, at which the script does what golf does.
SAME_HERE = {
    "MATRIX_BITS=6",
    "GPTQ_ENABLED=1",
    "SLIDING_WINDOW_ENABLED=1",
    "PARALLEL_FINAL_LANE=mean",
    "TTT_OPTIMIZER=adam",
    "GLOBAL_TTT_RESPECT_DOC_BOUNDARIES=1",
    "ATTN_OUT_GATE_SRC=proj",
    "MATRIX_CLIP_SIGMAS=12.85",
    "EMBEDDING_DIM=512",
    "LQER_SCOPE=all",
}
# Variables that the translation knows by their names.
OTHERS = {"TTT_ENABLED", "TTT_WARM_START_A", "EMBED_BITS", "COMPRESSOR", GATES, *LORA_TARGETS, *QUANT, *FRONTIER}
OTHERS |= {"TTT_MASK"}
NEUTRAL = {"ASYM_LOGIT_RESCALE": "its two caps start at the one cap, and nothing trains them"}
ABSENT_AT_ZERO = {"MLP_HIDDEN"}  # variables whose 0 means "not given" in the scripts
OFF_AT_ZERO = {  # variables whose 0 or -1 needs no override, because the feature is off here by default
    *("MTP_NUM_HEADS", "DTG_ENABLED", "USE_GPTQ", "PRUNE_PCT"),
    *("PRUNE_RATIO", "INT4_LAYERS", HESSIAN_CLIP),
}
NEVER_READ = {"MUON_BETA2", "LATE_QAT", "ROPE_TRAIN_SEQ_LEN"}  # variables of public commands that no script reads
LATE_QAT = {"LATE_QAT_THRESHOLD", "QAT_THRESHOLD"}  # variables of late QAT, unless soft rounding is on
NOT_THE_MODEL = ("DATA_PATH", "TOKENIZER_PATH", "RUN_ID", "SEED", "VAL_BATCH_SIZE", "VAL_LOSS_EVERY", "TRAIN_LOG_EVERY")
# Variables of files, ranks and logs, and of speed alone.
NOT_SETTINGS = re.compile(
    r"\w*(_DIR|_PATH|_FILES|_FILE|RANK|WORLD_SIZE|_LOG_EVERY|_ID)|VAL_BATCH_\w+|ARTIFACT_DIR|COMPILE_MODE|\w*EVAL_ONLY"
    r"|FUSED_\w+|\w*_NAME_PATTERNS|LOGFILE|DISTRIBUTED|IS_MAIN_PROCESS|GRAD_ACCUM_STEPS|SWA_\w+|TTT_EVAL_BATCHES|VAL_DOC_FRACTION"
)
# Names of switches: what stands for … is the beginning of the names of what they switch.
SWITCH = re.compile(r"(?:USE|ENABLE)_(\w+)|(\w+?)(?:_HASH)?_(?:ENABLED|ON)|(\w+)_HASH")
MACHINE = re.compile(
    r"(NCCL|CUDA|OMP|MKL|TORCH|PYTORCH|PYTHON|TRITON|HF|WANDB|LD)_\w+|PATH|MASTER_(ADDR|PORT)|USE_FLASH_ATTN_INTERFACE"
)


def switched_by(name: str) -> str:
    """Return the beginning of the names of the variables that the switch `name` governs; empty for no switch."""
    match = SWITCH.fullmatch(name)
    return next(filter(None, match.groups()), "") if match else ""
