"""Train a language model under the clock, pack it into an artifact, read it back from disk and score it.

    torchrun --standalone --nproc_per_node=8 train_gpt.py     (or python train_gpt.py: one process)

Settings are the defaults of the dataclasses. The variables in `ENVIRONMENT`, named as in the public scripts, change
them. RUN_ID names the log, logs/<RUN_ID>.txt. ARTIFACT_PATH names the artifact. EVAL_ONLY=1 scores an artifact that is
there and trains nothing.
"""

# The entry of an exported script: `golf.submission.script` puts it and what it needs into one file, and the resolved
# configuration into the dataclasses. The framework's own main is `golf.training.loop.rank`; both call the same stages.

from __future__ import annotations

import dataclasses
import functools
import json
import os
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from golf.artifact.container import load_weights_only
from golf.errors import GolfError
from golf.paths import resolve
from golf.run.trainlog import TrainLog
from golf.settings.config import Config, eval_seq_len, has_stages, scored_config, trains_apart
from golf.training.data.batches import open_loader
from golf.training.data.dataset import Dataset, bytes_of_targets, open_tokenizer, scored_tokens, validation_tokens
from golf.training.data.shards import find_shards, open_shard
from golf.training.loop.export import log_sizes, pack_model, round_model
from golf.training.loop.run_parts import (
    calibrate_trained,
    log_header,
    score_artifact,
    seconds_left,
    set_up_torch,
    tune_trained,
    validation,
)
from golf.training.loop.state import build_state
from golf.training.loop.training import train
from golf.training.loop.warmup import warm_up
from golf.training.model.attention import choose_kernel
from golf.training.ranks import Ranks, end_rank, join_ranks, leave_ranks
from golf.training.scoring.scorer import Scorer

# The settings that each variable sets. A script whose scores do not slide has no EVAL_STRIDE.
ENVIRONMENT = {
    "DATA_PATH": "data.path",
    "TOKENIZER_PATH": "data.tokenizer_path",
    "VOCAB_SIZE": "data.vocab_size model.vocab_size",
    "SEED": "seed",
    "ITERATIONS": "schedule.iterations",
    "MAX_WALLCLOCK_SECONDS": "budget.train_seconds",
    "WARMUP_STEPS": "schedule.warmup_steps",
    "WARMDOWN_ITERS": "schedule.warmdown_iters",
    "TRAIN_BATCH_TOKENS": "data.train_batch_tokens",
    "TRAIN_SEQ_LEN": "data.train_seq_len",
    "VAL_BATCH_SIZE": "eval.val_batch_tokens",
    "VAL_LOSS_EVERY": "eval.val_loss_every",
    "EVAL_STRIDE": "eval.stride",
    "TRAIN_LOG_EVERY": "launch.train_log_every",
    "MODEL_DIM": "model.model_dim",
    "KEEP_FLOAT_MAX_NUMEL": "quant.small_numel",
    "CALIBRATION_TOKENS": "quant.calibration.tokens",
}


class ScriptLog(TrainLog):
    """Log on the terminal and in logs/<RUN_ID>.txt, silent on other ranks than the first."""

    def __init__(self, cfg: Config, is_first: bool):
        super().__init__(cfg)
        self.is_first = is_first
        self.path = Path("logs") / f"{os.environ.get('RUN_ID', uuid.uuid4())}.txt"
        if is_first:
            self.path.parent.mkdir(exist_ok=True)

    def line(self, text: str) -> None:
        if self.is_first:
            print(text, flush=True)
            # Opened for every line, so that a killed run leaves all lines until then.
            with self.path.open("ab") as file:
                file.write(f"{text}\n".encode())


def main() -> None:
    try:
        run()
    except GolfError as error:
        sys.exit(f"error: {error}")
    end_rank(0)


def run() -> None:
    """Train, pack, read back and score, or with EVAL_ONLY=1 only the last two."""
    # Settings, processes and log.
    cfg = configured(Config(), os.environ)
    find_inputs(cfg)
    set_up_torch(cfg)
    ranks = join_ranks(cfg.launch.device, cfg.launch.nproc)
    log = ScriptLog(cfg, ranks.is_first)

    # Validation text. Training shards are opened only if there is something to train.
    tokenizer = open_tokenizer(cfg.data)
    validation = scored_tokens(cfg, validation_tokens(cfg.data))
    dataset = Dataset([], [], validation, bytes_of_targets(cfg.data, tokenizer, validation), "")
    scorer = Scorer(cfg, dataset, ranks)

    # Training, up to the artifact on disk.
    artifact = Path(os.environ.get("ARTIFACT_PATH", "artifact.golf"))
    if os.environ.get("EVAL_ONLY", "0").lower() in ("", "0", "no", "false"):
        train_and_pack(cfg, dataset, scorer, ranks, log, artifact)
    else:
        # Training chooses it, too, and other kernels give other last digits.
        choose_kernel(ranks.device, cfg)

    # Load from disk and score: only what the file holds counts.
    stored = scored_config(cfg) if trains_apart(cfg) else cfg
    score_artifact(cfg, load_weights_only(artifact, stored.quant, stored.tech, stored.model), scorer, log)
    leave_ranks()


def configured(cfg: Config, environment: Mapping[str, str]) -> Config:
    """Return `cfg` with the values of the variables in `environment` that the script knows."""
    set_from(environment, cfg)
    # torchrun sets WORLD_SIZE; without torchrun the script is one process.
    cfg.launch.nproc = int(environment.get("WORLD_SIZE", "1"))
    if cfg.data.micro_batches % cfg.launch.nproc:
        raise GolfError(f"{cfg.data.micro_batches} micro-batches cannot be dealt out to {cfg.launch.nproc} processes")
    tokens, seq_len = cfg.data.train_batch_tokens, cfg.data.train_seq_len
    if not tokens * seq_len or tokens % (cfg.data.micro_batches * seq_len):
        sequences = f"{cfg.data.micro_batches} × TRAIN_SEQ_LEN={seq_len}"
        raise GolfError(f"TRAIN_BATCH_TOKENS={tokens} is no multiple of {sequences} tokens")
    if cfg.eval.stride > 0 and cfg.eval.stride >= eval_seq_len(cfg):
        raise GolfError(f"EVAL_STRIDE={cfg.eval.stride} has to be below the {eval_seq_len(cfg)} tokens of a sequence")
    # The values in this file are those for GPUs; without one the kernel and the compiler give way to what runs
    # everywhere.
    if not torch.cuda.is_available():
        cfg.launch.device, cfg.model.attention = "cpu", "sdpa"
        if cfg.launch.compile != "off":
            torch.compiler.set_stance("force_eager")
    return cfg


def find_inputs(cfg: Config) -> None:
    """Take the tokenizer beside this file if its own place is empty. Raises `GolfError` for what is missing."""
    inputs = {"DATA_PATH": cfg.data.path}
    if cfg.data.units != "bytes":
        beside = Path(__file__).parent / Path(cfg.data.tokenizer_path).name
        if not resolve(cfg.data.tokenizer_path).exists() and beside.is_file():
            cfg.data.tokenizer_path = str(beside)
        inputs["TOKENIZER_PATH"] = cfg.data.tokenizer_path
    for name, path in inputs.items():
        if not resolve(path).exists():
            raise GolfError(f"{path} does not exist: say where it is with {name}=…")


def set_from(environment: Mapping[str, str], cfg: Config) -> None:
    """Set those settings of `cfg` that `ENVIRONMENT` names a variable of `environment` for.

    A run in stages has STAGES, too: a list of them in JSON. Raises `GolfError` for what is no number from 0 up.
    """
    for name, keys in ENVIRONMENT.items():
        for key in keys.split() if name in environment else ():
            *groups, field = key.split(".")
            node: Any = functools.reduce(getattr, groups, cfg)
            # The default tells the type that the text of the variable has to become.
            try:
                value = type(getattr(node, field))(environment[name])
                # Turned round, so that NaN is refused, too.
                if not (isinstance(value, str) or value >= 0):
                    raise ValueError
                setattr(node, field, value)
            except ValueError as error:
                raise GolfError(f"{name}={environment[name]} is no number from 0 up") from error
    if has_stages(cfg) and "STAGES" in environment:
        like = cfg.schedule.stages[0]
        cfg.schedule.stages = [dataclasses.replace(like, **stage) for stage in json.loads(environment["STAGES"])]


def train_and_pack(cfg: Config, dataset: Dataset, scorer: Scorer, ranks: Ranks, log: ScriptLog, artifact: Path) -> None:
    """Train for `budget.train_seconds` or `schedule.iterations`, whichever ends first, and write the artifact."""
    # Whether the artifact can be written is found out before the training.
    artifact.parent.mkdir(parents=True, exist_ok=True)
    artifact.open("ab").close()
    # Training shards.
    files = find_shards(resolve(cfg.data.path), cfg.data.train_files, "train")
    dataset.train.extend(open_shard(path) for path in files)

    # Model, optimizer, compiled step; warm-up before the clock.
    state = build_state(cfg, ranks)
    log_header(log, str(log.path), dataset, state)
    warm_up(cfg, state, log.warmup_step)

    # Timed loop and calibration.
    with open_loader(cfg, dataset, ranks) as loader:
        training = train(cfg, state, loader, validation(state, scorer), log)
        calibration = calibrate_trained(cfg, state, training, loader, dataset, log)
        if training.diverged:
            raise GolfError(training.why_diverged())
        code = Path(__file__).stat().st_size
        if cfg.quant.tune.steps > 0:
            left = seconds_left(cfg, ranks.first(training.seconds) + (calibration.seconds if calibration else 0.0))
            coded = tune_trained(cfg, state, left, calibration, loader, code, log).coded
    if ranks.device.type == "cuda":
        log.peak_memory(torch.cuda.max_memory_allocated() >> 20, torch.cuda.max_memory_reserved() >> 20)

    # Quantize, pack, write. The bytes that count are the artifact's and this file's.
    if ranks.is_first:
        weights = {name: tensor.detach().cpu() for name, tensor in state.final_weights().items()}
        if cfg.quant.tune.steps == 0:
            coded = round_model(cfg, weights, code, calibration.hessians if calibration else None, log)
        packed = pack_model(cfg, weights, coded)
        artifact.write_bytes(packed.artifact)
        log_sizes(cfg, packed, packed.weight_bytes, code, log)
    # The other ranks read the artifact from disk, where it has to be complete first.
    ranks.barrier()


if __name__ == "__main__":
    main()
