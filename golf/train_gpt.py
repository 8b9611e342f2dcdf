"""Train a language model under the clock, pack it into an artifact, read that back from disk and score it.

    torchrun --standalone --nproc_per_node=8 train_gpt.py     (or python train_gpt.py: one process)

Settings are the defaults of the dataclasses; those in `ENVIRONMENT` can be set by the field's variables. RUN_ID names
the log, logs/<RUN_ID>.txt. ARTIFACT_PATH is the artifact; EVAL_ONLY=1 scores the one that is there, and trains nothing.
"""

# The entry of an exported script: `golf.artifact.script` puts it and what it needs into one file, and the resolved
# configuration into the dataclasses. Inside the framework, `golf.training.loop.rank` is what a rank does.

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from golf.artifact.container import load_weights_only, pack, payload
from golf.bits import Score
from golf.errors import GolfError
from golf.paths import resolve
from golf.run.trainlog import TrainLog
from golf.settings.config import Config, eval_seq_len, uses_gptq
from golf.training.data.batches import open_loader
from golf.training.data.byte_tables import byte_tables, load_tokenizer
from golf.training.data.dataset import Dataset, validation_tokens, whole_sequences
from golf.training.data.shards import find_shards, open_shard
from golf.training.loop.calibration import calibrate_after
from golf.training.loop.export import quantized
from golf.training.loop.steps import TrainStep
from golf.training.loop.switches import StepHooks, Switches
from golf.training.loop.training import train
from golf.training.loop.warmup import warm_up
from golf.training.model.attention import choose_kernel
from golf.training.model.build import build_model, compile_for_training
from golf.training.optim.groups import build_optimizer
from golf.training.ranks import Ranks, join_ranks, leave_ranks
from golf.training.scoring.scorer import Scorer

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
    "EVAL_STRIDE": "eval.stride",  # of a sliding score; where there is none, nothing of it is in the script
    "TRAIN_LOG_EVERY": "launch.train_log_every",
    "MODEL_DIM": "model.model_dim",
    "KEEP_FLOAT_MAX_NUMEL": "quant.small_numel",
    "CALIBRATION_TOKENS": "quant.calibration.tokens",
}


class ScriptLog(TrainLog):
    """Prints, and writes logs/<RUN_ID>.txt; silent on other ranks than the first."""

    def __init__(self, cfg: Config, is_first: bool):
        super().__init__(cfg)
        self.is_first = is_first
        self.path = Path("logs") / f"{os.environ.get('RUN_ID', uuid.uuid4())}.txt"
        if is_first:
            self.path.parent.mkdir(exist_ok=True)

    def line(self, text: str) -> None:
        if self.is_first:
            print(text, flush=True)
            with self.path.open("a") as file:
                file.write(text + "\n")


def main() -> None:
    try:
        run()
    except GolfError as error:
        sys.exit(f"error: {error}")


def run() -> None:
    cfg = configured(os.environ)
    torch.manual_seed(cfg.seed)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    ranks = join_ranks(cfg.launch.device)
    log = ScriptLog(cfg, ranks.is_first)
    tokenizer = load_tokenizer(resolve(cfg.data.tokenizer_path), cfg.data.vocab_size)
    validation = whole_sequences(validation_tokens(cfg.data), eval_seq_len(cfg))
    dataset = Dataset([], [], validation, byte_tables(tokenizer, cfg.data.vocab_size), "")
    scorer = Scorer(cfg, dataset, ranks)
    artifact = Path(os.environ.get("ARTIFACT_PATH", "artifact.golf"))
    if os.environ.get("EVAL_ONLY", "0") != "1":
        train_and_pack(cfg, dataset, scorer, ranks, log, artifact)
    score_artifact(cfg, load_weights_only(artifact, cfg.quant), scorer, log)
    leave_ranks()


def configured(environment: Mapping[str, str]) -> Config:
    """The settings with what `environment` says put in."""
    cfg = Config()
    set_from(environment, cfg)
    cfg.launch.nproc = int(environment.get("WORLD_SIZE", "1"))
    if cfg.data.micro_batches % cfg.launch.nproc:
        raise GolfError(f"{cfg.data.micro_batches} micro-batches cannot be dealt out to {cfg.launch.nproc} processes")
    if not torch.cuda.is_available():
        cfg.launch.device, cfg.model.attention = "cpu", "sdpa"
        if cfg.launch.compile != "off":
            torch.compiler.set_stance("force_eager")
    return cfg


def set_from(environment: Mapping[str, str], cfg: Config) -> None:
    """Put the values of those variables that are in `ENVIRONMENT` into `cfg`."""
    for name, keys in ENVIRONMENT.items():
        for key in keys.split() if name in environment else ():
            node: Any = cfg
            *groups, field = key.split(".")
            for group in groups:
                node = getattr(node, group)
            setattr(node, field, type(getattr(node, field))(environment[name]))


def train_and_pack(cfg: Config, dataset: Dataset, scorer: Scorer, ranks: Ranks, log: ScriptLog, artifact: Path) -> None:
    """Train for `budget.train_seconds` or `schedule.iterations`, whichever ends first, and write the artifact."""
    files = find_shards(resolve(cfg.data.path), cfg.data.train_files, "train")
    dataset.train.extend(open_shard(path) for path in files)
    model = build_model(cfg).to(ranks.device)
    log.start(
        name=str(log.path),
        train_shards=len(files),
        val_tokens=dataset.validation.size - 1,
        model_params=sum(p.numel() for p in model.parameters()),
        attention=choose_kernel(ranks.device, cfg),
    )
    optimizer = build_optimizer(cfg, model, rank=ranks.rank, world_size=ranks.world_size)
    compile_for_training(model, cfg.launch.compile)
    step = TrainStep(cfg, model, optimizer, ranks)
    switches = Switches(cfg, log.switched_on)
    warm_up(cfg, step, switches, StepHooks(cfg, model), log.warmup_step, prove=False)
    hooks = StepHooks(cfg, model)

    def validate(last: bool) -> Score:
        return scorer(hooks.final_weights() if last else model.state_dict(), switches.scored())

    with open_loader(cfg, dataset, ranks) as loader:
        training = train(cfg, step, loader, validate, ranks, log, switches, hooks)
        hessians = None
        if uses_gptq(cfg.quant) and not training.diverged:
            calibration = calibrate_after(cfg, hooks.final_weights(), loader.next_batch, training.seconds, ranks)
            log.calibrated(calibration.tokens, len(calibration.hessians), calibration.seconds)
            hessians = calibration.hessians
    if training.diverged:
        raise GolfError(f"the loss was {training.train_loss} at step {training.steps}")
    if ranks.device.type == "cuda":
        log.peak_memory(torch.cuda.max_memory_allocated() >> 20, torch.cuda.max_memory_reserved() >> 20)
    if ranks.is_first:
        write_artifact(cfg, hooks.final_weights(), hessians, log, artifact)
    ranks.barrier()


def write_artifact(
    cfg: Config,
    state_dict: Mapping[str, Tensor],
    hessians: Mapping[str, Tensor] | None,
    log: TrainLog,
    artifact: Path,
) -> None:
    """Quantize, pack and write; the bytes that count are the artifact's and this file's."""
    weights = {name: tensor.detach().cpu() for name, tensor in state_dict.items()}
    code = Path(__file__).stat().st_size
    coded = quantized(cfg, weights, code, hessians, log)
    artifact.write_bytes(pack(coded, cfg.model, cfg.quant, cfg.tech))
    raw = sum(tensor.nbytes for tensor in weights.values())
    stored = sum(tensor.payload_bytes for tensor in coded.values())
    log.sizes(
        raw_model=raw,
        code=code,
        artifact=artifact.stat().st_size,
        stored=stored,
        uncompressed=len(payload(coded, cfg.model, cfg.tech)),
        ratio=raw / stored,
    )


def score_artifact(cfg: Config, weights: Mapping[str, Tensor], scorer: Scorer, log: TrainLog) -> None:
    """Score the weights as they came back from the artifact."""
    log.round_trip(scorer(weights))
    if cfg.eval.stride:
        log.sliding(scorer.sliding(weights))
    if cfg.eval.ttt.method != "off":
        log.test_time_trained(scorer.test_time_trained(weights, watcher=log))


if __name__ == "__main__":
    main()
