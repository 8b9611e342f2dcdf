"""The proof that an exported script is the framework: both train a small model on the same text, and must agree.

The script is run as it will be submitted, from a folder of its own, by a Python that cannot import the framework. The
variables that scripts of this field read make it small; everything else is what the submission does.
"""

from __future__ import annotations

import copy
import random
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

from golf.errors import GolfError
from golf.files import write_json
from golf.paths import ROOT
from golf.run.folder import RunFolder
from golf.run.result import read_result
from golf.settings.config import Config, to_dict
from golf.settings.consistency import check
from golf.submission.clean_env import plain_variables
from golf.train_gpt import set_from
from golf.training.data.own_text import OwnDataset, make_dataset
from golf.training.model.build import shapeless_model

STEPS = 20
TOKENS = 64  # per sequence
VOCAB, DOCUMENTS = 320, 48
SEED = "7"
HEAD_DIMS = (8, 16, 32, 64)
SMALL_NUMEL = "1000"  # or all tensors of so small a model would be stored as floats
TIMES = re.compile(r"\b(\w*time|step_avg|elapsed)[:=][\d.]+(ms|s)|MiB.*")
COMPARED = re.compile(r"(step:|final_|legal_ttt|late_switch|model_params)")


@dataclass(frozen=True)
class Rehearsal:
    """What framework and script agreed on."""

    losses: int  # lines of train.log
    artifact_bytes: int
    val_bpb: float


def rehearse(cfg: Config, script: str, python: Path, folder: Path, *, steps: int = STEPS) -> Rehearsal:
    """Run the framework and `script` on the same small training in `folder`; `python` is a clean environment's.

    Raises `GolfError` with the first thing in which they differ.
    """
    data = small_data(folder, cfg)
    variables = small_variables(cfg, data, steps)
    own = _framework(cfg, variables, folder)
    place = folder / "script"
    run_script(script, python, place, {**variables, "RUN_ID": "rehearsal"})
    lines = [_lines(path) for path in (own.train_log, place / "logs" / "rehearsal.txt")]
    for expected, found in zip(*lines, strict=False):
        if expected != found:
            raise GolfError(f"The exported script is not the framework: it prints {found!r}, not {expected!r}.")
    if len(lines[0]) != len(lines[1]) or not lines[0]:
        raise GolfError(f"The exported script prints {len(lines[1])} lines of the {len(lines[0])} of the framework.")
    artifact = place / "artifact.golf"
    if artifact.read_bytes() != own.artifact.read_bytes():
        raise GolfError("The exported script packs another artifact than the framework, from the same weights.")
    _score_again(script, python, place, variables, data)
    score = read_result(own.result).final_score
    assert score is not None
    return Rehearsal(len(lines[0]), artifact.stat().st_size, score.val_bpb)


def small_data(folder: Path, cfg: Config) -> OwnDataset:
    """A few thousand tokens of random words, in shards that the patterns of `cfg` match."""
    choose = random.Random(0)
    words = ["ü", "漢", "1", "22", *("".join(choose.choices("abcdefghijklmnop", k=5)) for _ in range(60))]
    docs = folder / "documents"
    docs.mkdir(parents=True, exist_ok=True)
    for number in range(DOCUMENTS):
        (docs / f"{number:03}.txt").write_text(" ".join(choose.choices(words, k=90)), encoding="utf-8")
    name = cfg.data.train_files.removesuffix("_train_*.bin").replace("*", "any")
    return make_dataset([docs], name=name, root=folder / "data", vocab_size=VOCAB, val_every=6)


def small_variables(cfg: Config, data: OwnDataset, steps: int = STEPS) -> dict[str, str]:
    """The environment that makes a script of `cfg` train for seconds on a CPU."""
    batch = str(cfg.data.micro_batches * TOKENS)
    variables = {
        "DATA_PATH": str(data.folder),
        "TOKENIZER_PATH": str(data.tokenizer_path),
        "VOCAB_SIZE": str(data.vocab_size),
        "SEED": SEED,
        "ITERATIONS": str(steps),
        "MAX_WALLCLOCK_SECONDS": "0",
        "WARMUP_STEPS": "1",
        "WARMDOWN_ITERS": str(steps // 2),
        "TRAIN_BATCH_TOKENS": batch,
        "TRAIN_SEQ_LEN": str(TOKENS),
        "VAL_BATCH_SIZE": batch,
        "VAL_LOSS_EVERY": str(steps // 2),
        "TRAIN_LOG_EVERY": "1",
        "KEEP_FLOAT_MAX_NUMEL": SMALL_NUMEL,
        "CALIBRATION_TOKENS": batch,
    }
    if cfg.eval.stride:
        variables["EVAL_STRIDE"] = str(min(cfg.eval.stride, TOKENS // 2))
    widths = [cfg.model.num_heads * head_dim for head_dim in HEAD_DIMS] + [cfg.model.model_dim]
    return next(v for width in widths if _works(cfg, v := {**variables, "MODEL_DIM": str(width)}))


def _works(cfg: Config, variables: dict[str, str]) -> bool:
    """Whether the small model runs; techniques may ask for heads of a certain width. Its own width always does."""
    small = _small(cfg, variables)
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
    small = copy.deepcopy(cfg)
    set_from(variables, small)
    small.data.built_from = small.data.fingerprint = None
    small.launch.nproc, small.launch.device, small.launch.compile, small.launch.threads = 1, "cpu", "off", 1
    small.model.attention = "sdpa"
    small.rules.code_bytes = "estimate"
    small.rules.failed_check = "void"  # proofs were given by the run itself; here only the training is compared
    return small


def _framework(cfg: Config, variables: dict[str, str], folder: Path) -> RunFolder:
    run = RunFolder(folder / "framework")
    run.path.mkdir()
    write_json(run.config, to_dict(_small(cfg, variables)))
    environment = plain_variables(PYTHONPATH=str(ROOT), GOLF_EAGER_CPU="off")  # as the script: not one bit may differ
    command = [sys.executable, "-m", "golf.jobs.launch.worker", str(run.path)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    if not run.artifact.is_file():
        reason = read_result(run.result).reason if run.result.is_file() else done.stderr[-2000:]
        raise GolfError(f"The framework's own small run failed, so the script cannot be compared: {reason}")
    return run


def run_script(script: str, python: Path, place: Path, variables: dict[str, str]) -> None:
    """Run `script` as train_gpt.py in the folder `place`; raises `GolfError` with the end of its output if it fails."""
    place.mkdir(exist_ok=True)
    (place / "train_gpt.py").write_text(script, encoding="utf-8")
    command = [str(python), "train_gpt.py"]
    done = subprocess.run(command, cwd=place, env=plain_variables(**variables), capture_output=True, text=True)
    if done.returncode:
        raise GolfError(f"The exported script fails in a clean environment: {done.stderr.strip()[-2000:]}")


def _score_again(script: str, python: Path, place: Path, variables: dict[str, str], data: OwnDataset) -> None:
    """EVAL_ONLY=1 without any training data must find the score of the artifact again."""
    validation = place / "validation"
    validation.mkdir()
    for shard in data.folder.glob("*_val_*.bin"):
        shutil.copy(shard, validation)
    run_script(script, python, place, {**variables, "DATA_PATH": "validation", "RUN_ID": "again", "EVAL_ONLY": "1"})
    first, again = (_lines(place / "logs" / f"{name}.txt") for name in ("rehearsal", "again"))
    if not again or first[-len(again) :] != again:
        raise GolfError(f"EVAL_ONLY=1 gives {again[-1:]}, the training run ended with {first[-1:]}.")


def _lines(log: Path) -> list[str]:
    """What does not depend on the clock or on paths."""
    return [TIMES.sub("", line).rstrip() for line in log.read_text().splitlines() if COMPARED.match(line)]
