"""Train a language model under the clock, pack it into an artifact, read it back from disk and score it.

    torchrun --standalone --nproc_per_node=8 train_gpt.py     (or python train_gpt.py: one process)

Settings are the defaults of the dataclasses. The variables in `ENVIRONMENT`, named as in the public scripts, change
them. RUN_ID names the log, logs/<RUN_ID>.txt. ARTIFACT_PATH names the artifact. EVAL_ONLY=1 scores an artifact that is
there and trains nothing.
"""

# The entry of an exported script: `golf.submission.script` puts it and what it needs into one file, and the resolved
# configuration into the dataclasses. The run itself is the framework's, `golf.training.loop.main`.

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

from golf.errors import GolfError
from golf.paths import resolve
from golf.run.trainlog import TrainLog
from golf.settings.config import Config, eval_seq_len, has_stages
from golf.training.data.dataset import Dataset, bytes_of_targets, open_tokenizer, scored_tokens, validation_tokens
from golf.training.data.shards import find_shards, open_shard
from golf.training.loop.keeper import Keeper
from golf.training.loop.main import score_artifact, set_up_torch, train_pack_and_score
from golf.training.model.attention import choose_kernel
from golf.training.ranks import end_rank, join_ranks, leave_ranks
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
        super().__init__(cfg, Path("logs") / f"{os.environ.get('RUN_ID', uuid.uuid4())}.txt")
        self.is_first = is_first
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
    cfg = configured(Config(), os.environ)
    find_inputs(cfg)
    set_up_torch(cfg)
    ranks = join_ranks(cfg.launch.device, cfg.launch.nproc)
    log = ScriptLog(cfg, ranks.is_first)
    # The bytes that count are the artifact's and this file's.
    artifact = Path(os.environ.get("ARTIFACT_PATH", "artifact.golf"))
    keeper = Keeper(ranks, log, artifact, code_bytes=Path(__file__).stat().st_size)

    # Validation text. Training shards are opened only if there is something to train.
    validation = scored_tokens(cfg, validation_tokens(cfg.data))
    dataset = Dataset([], [], validation, bytes_of_targets(cfg.data, open_tokenizer(cfg.data), validation), "")
    if os.environ.get("EVAL_ONLY", "0").lower() in ("", "0", "no", "false"):
        # Whether the artifact can be written is found out before the training.
        artifact.parent.mkdir(parents=True, exist_ok=True)
        artifact.open("ab").close()
        files = find_shards(resolve(cfg.data.path), cfg.data.train_files, "train")
        dataset.train.extend(open_shard(path) for path in files)
        train_pack_and_score(cfg, dataset, ranks, keeper)
    else:
        # Training chooses it, too, and other kernels give other last digits.
        choose_kernel(ranks.device, cfg)
        score_artifact(cfg, keeper.read_artifact(cfg), Scorer(cfg, dataset, ranks), log)
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
    # The values in this file are those for GPUs. Without one the kernel and the compiler are those for any machine.
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


if __name__ == "__main__":
    main()
