"""The public scripts' environment variables by name: the setting that each stands for, and those without one."""

from __future__ import annotations

import re

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
HESSIAN_CLIP = "HESSIAN_CLIP_LAMBDA"  # in scripts with GPTQ and clips in deviations (record 04-06)
LORA_TARGETS = {"TTT_K_LORA": "k", "TTT_O_LORA": "o", "TTT_MLP_LORA": "mlp"}
# Variables that only the scripts from 10 April on have, whose low-rank factors are others than those of 17 March.
APRIL_LORA = {
    *(name for name, key in KEYS.items() if key.startswith(("eval.ttt.lora_phases", "eval.ttt.lora_beta"))),
    *("TTT_LORA_ALPHA", "TTT_WEIGHT_DECAY", "TTT_GRAD_STEPS", "TTT_WARM_START_A", *LORA_TARGETS),
}
# Variables of scripts that correct rounding with low-rank factors; the bits are those of factors with a scale a row.
LQER = {"LQER_ENABLED", "LQER_ASYM_ENABLED", "LQER_FACTOR_BITS", "LQER_ASYM_GROUP"}
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
}
# Variables that the translation knows by their names.
OTHERS = {"TTT_ENABLED", "TTT_WARM_START_A", "EMBED_BITS", "COMPRESSOR", GATES, *LORA_TARGETS, *LQER}
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
MACHINE = re.compile(
    r"(NCCL|CUDA|OMP|MKL|TORCH|PYTORCH|PYTHON|TRITON|HF|WANDB|LD)_\w+|PATH|MASTER_(ADDR|PORT)|USE_FLASH_ATTN_INTERFACE"
)
