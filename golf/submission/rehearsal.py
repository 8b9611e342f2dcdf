"""Rehearsals: an exported script and the framework train a small model on the same text and have to agree.

The script runs as it will be submitted, in its own folder, under a Python that cannot import the framework. Environment
variables that scripts of this challenge read make the model small; everything else is as in the submission.
"""

from __future__ import annotations

import copy
import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from golf.errors import GolfError
from golf.files import write_json
from golf.idea_folders import VARIABLE
from golf.lab.corpora.own_text import OwnDataset, Recipe, make_dataset
from golf.paths import ROOT
from golf.run.folder import RunFolder
from golf.run.result import read_result
from golf.settings.config import Config, Stage, has_stages, stages, to_dict
from golf.settings.consistency import check
from golf.submission.clean_env import plain_variables
from golf.train_gpt import set_from
from golf.training.model.build import shapeless_model
from golf.training.services import code_bytes

STEPS = 20
TOKENS = 64  # per sequence
VOCAB, DOCUMENTS = 320, 48
SEED = "7"
HEAD_DIMS = (8, 16, 32, 64)  # widths of a head that are tried, smallest first
SMALL_NUMEL = "1000"  # elements; with the usual limit all tensors of the small model would be stored as floats
# Times and memory differ between any two runs.
TIMES = re.compile(r"\b(\w*time|step_avg|elapsed)[:=][\d.]+(ms|s)|MiB.*")
COMPARED = re.compile(r"(step:|final_|legal_ttt|late_switch|model_params)")


@dataclass(frozen=True)
class Rehearsal:
    """Results on which framework and script agreed."""

    losses: int  # lines of train.log
    artifact_bytes: int
    val_bpb: float


def rehearse(cfg: Config, script: bytes, python: Path, folder: Path, *, steps: int = STEPS) -> Rehearsal:
    """Train the same small model by the framework and by `script` in `folder`; `python` is a clean environment's.

    Raises `GolfError` with the first difference.
    """
    # Both sides read the same shards and the same environment variables.
    data = small_data(folder, cfg)
    variables = small_variables(cfg, data, steps)
    own = _framework(cfg, variables, folder)
    script_folder = folder / "script"
    run_script(script, python, script_folder, {**variables, "RUN_ID": "rehearsal"})
    lines = [_lines(path) for path in (own.train_log, script_folder / "logs" / "rehearsal.txt")]
    for expected, printed in zip(*lines, strict=False):
        if expected != printed:
            raise GolfError(f"The exported script is not the framework: it prints {printed!r}, not {expected!r}.")
    if len(lines[0]) != len(lines[1]) or not lines[0]:
        raise GolfError(f"The exported script prints {len(lines[1])} lines of the {len(lines[0])} of the framework.")
    artifact = script_folder / "artifact.golf"
    if artifact.read_bytes() != own.artifact.read_bytes():
        raise GolfError("The exported script packs another artifact than the framework, from the same weights.")
    _score_again(script, python, script_folder, variables, data)
    score = read_result(own.result).final_score
    assert score is not None
    return Rehearsal(len(lines[0]), artifact.stat().st_size, score.val_bpb)


def small_data(folder: Path, cfg: Config) -> OwnDataset:
    """Write a few thousand tokens of random words into shards that the file patterns of `cfg` match."""
    choose = random.Random(0)
    # Characters of several bytes and digits exercise byte counting in the tokenizer.
    words = ["ü", "漢", "1", "22", *("".join(choose.choices("abcdefghijklmnop", k=5)) for _ in range(60))]
    docs = folder / "documents"
    docs.mkdir(parents=True, exist_ok=True)
    for number in range(DOCUMENTS):
        (docs / f"{number:03}.txt").write_text(" ".join(choose.choices(words, k=90)), encoding="utf-8")
    name = cfg.data.train_files.removesuffix("_train_*.bin").replace("*", "any")
    recipe = Recipe(name, VOCAB, caseops=cfg.data.byte_sidecar, val_every=6, is_bytes=cfg.data.units == "bytes")
    return make_dataset([docs], folder / "data", recipe)


def small_variables(cfg: Config, data: OwnDataset, steps: int = STEPS) -> dict[str, str]:
    """Return the environment variables with which a script of `cfg` trains for seconds on a CPU."""
    # A chunk of test-time training by document has to fit into a window.
    tokens = max(TOKENS, (cfg.eval.ttt.chunk_tokens or 0) if cfg.eval.ttt.method == "lora" else 0)
    batch = str(cfg.data.micro_batches * tokens)
    variables = {
        "DATA_PATH": str(data.folder),
        **({} if data.is_bytes else {"TOKENIZER_PATH": str(data.tokenizer_path)}),
        "VOCAB_SIZE": str(data.vocab_size),
        "SEED": SEED,
        "ITERATIONS": str(steps),
        # A clock could end the two trainings after different numbers of steps.
        "MAX_WALLCLOCK_SECONDS": "0",
        "WARMUP_STEPS": "1",
        "WARMDOWN_ITERS": str(steps // 2),
        "TRAIN_BATCH_TOKENS": batch,
        "TRAIN_SEQ_LEN": str(tokens),
        "VAL_BATCH_SIZE": str(cfg.data.micro_batches * max(tokens, cfg.eval.seq_len or 0)),
        "VAL_LOSS_EVERY": str(steps // 2),
        "TRAIN_LOG_EVERY": "1",
        "KEEP_FLOAT_MAX_NUMEL": SMALL_NUMEL,
        "CALIBRATION_TOKENS": batch,
    }
    if has_stages(cfg):
        variables["STAGES"] = json.dumps([_small_stage(cfg, stage, tokens) for stage in stages(cfg)])
    if cfg.eval.stride:
        variables["EVAL_STRIDE"] = str(min(cfg.eval.stride, TOKENS // 2))
    widths = [cfg.model.num_heads * head_dim for head_dim in HEAD_DIMS] + [cfg.model.model_dim]
    return next(v for width in widths if _works(cfg, v := {**variables, "MODEL_DIM": str(width)}))


def _small_stage(cfg: Config, stage: Stage, tokens: int) -> dict[str, Any]:
    """Return `stage` of a run in micro-batches of `tokens`, a power of two, in about its own proportions."""
    halvings = math.ceil(math.log2(cfg.data.train_seq_len / stage.seq_len))
    micro_batches = round(cfg.data.micro_batches * stage.batch_tokens / cfg.data.train_batch_tokens)
    return {"until": stage.until, "seq_len": max(1, tokens >> halvings), "batch_tokens": tokens * max(1, micro_batches)}


def _works(cfg: Config, variables: dict[str, str]) -> bool:
    """Tell whether the small model runs; techniques may need heads of a certain width."""
    small = _small(cfg, variables)
    # The width of the submission itself is the last resort: it runs, if not in seconds.
    if small.model.model_dim == cfg.model.model_dim:
        return True
    try:
        check(small)
        with torch.device("meta"):
            ids = torch.zeros(1, small.data.train_seq_len, dtype=torch.int64)
            shapeless_model(small)(ids, ids)
    except (GolfError, RuntimeError, ValueError):
        return False
    return True


def _small(cfg: Config, variables: dict[str, str]) -> Config:
    """Return the configuration of the framework's side of the rehearsal."""
    small = copy.deepcopy(cfg)
    set_from(variables, small)
    # The small text replaces the data set, so nothing may build or check the original one.
    small.data.built_from = small.data.fingerprint = None
    # One rank, one thread and no compiler: any other order of sums would differ in the last bits.
    small.launch.nproc, small.launch.device, small.launch.compile, small.launch.threads = 1, "cpu", "off", 1
    # The other kernels need a GPU.
    small.model.attention = "sdpa"
    # The bytes of the script are no part of the comparison.
    small.rules.code_bytes = "estimate"
    # The submitted runs have passed the proofs. Here they must not end the training that is compared.
    small.rules.failed_check = "void"
    return small


def _framework(cfg: Config, variables: dict[str, str], folder: Path) -> RunFolder:
    """Train the small model by the framework and return its run folder. Raises `GolfError` if it leaves no artifact."""
    run = RunFolder(folder / "framework")
    run.path.mkdir()
    small = _small(cfg, variables)
    write_json(run.config, to_dict(small))
    # The script has no eager replacements on CPUs; with them, results would not be the same to the last bit.
    # Proofs would take longer than the training. Without them the run is void, which does not matter here.
    environment = plain_variables(PYTHONPATH=str(ROOT), GOLF_EAGER_CPU="off", GOLF_PROOFS="off")
    environment |= {name: value for name, value in os.environ.items() if name == VARIABLE}
    command = [sys.executable, "-m", "golf.launch.worker", str(run.path), str(code_bytes(small))]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, encoding="utf-8")
    if not run.artifact.is_file():
        said = done.stderr[-2000:] or f"it ended with status {done.returncode} and said nothing"
        reason = read_result(run.result).reason if run.result.is_file() else said
        raise GolfError(f"The framework's own small run failed, so the script cannot be compared: {reason}")
    return run


def run_script(script: bytes, python: Path, folder: Path, variables: dict[str, str]) -> None:
    """Run `script` as train_gpt.py in `folder`; raises `GolfError` with the end of its output if it fails."""
    folder.mkdir(exist_ok=True)
    (folder / "train_gpt.py").write_bytes(script)
    command = [str(python), "train_gpt.py"]
    done = subprocess.run(command, cwd=folder, env=plain_variables(**variables), capture_output=True, encoding="utf-8")
    if done.returncode:
        raise GolfError(f"The exported script fails in a clean environment: {done.stderr.strip()[-2000:]}")


def _score_again(script: bytes, python: Path, folder: Path, variables: dict[str, str], data: OwnDataset) -> None:
    """Raise `GolfError` unless EVAL_ONLY=1 finds the artifact's score again without any training data."""
    validation = folder / "validation"
    # A folder with validation shards alone proves that scoring reads no training data.
    validation.mkdir()
    for shard in data.folder.glob("*_val_*.bin"):
        shutil.copy(shard, validation)
    run_script(script, python, folder, {**variables, "DATA_PATH": "validation", "RUN_ID": "again", "EVAL_ONLY": "1"})
    first, again = (_lines(folder / "logs" / f"{name}.txt") for name in ("rehearsal", "again"))
    # A run that only scores prints the last lines of the one that trained.
    if not again or first[-len(again) :] != again:
        raise GolfError(f"EVAL_ONLY=1 gives {again[-1:]}, the training run ended with {first[-1:]}.")


def _lines(log: Path) -> list[str]:
    """Return the lines of a log that are compared, without times and memory."""
    return [
        TIMES.sub("", line).rstrip() for line in log.read_text(encoding="utf-8").splitlines() if COMPARED.match(line)
    ]
