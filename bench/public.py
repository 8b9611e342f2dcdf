"""A public `train_gpt.py` against golf: same data, shape, batch, dtype and compile setting, in alternating rounds.

Both run in subprocesses that do one step at a time when told to. The public file runs unchanged, set up through its own
environment variables; `bench/shim.py` answers its CUDA calls on a machine without a GPU.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from bench.rounds import alternate, paired_ratio
from bench.scoring import with_stride
from bench.table import Row
from golf.errors import GolfError
from golf.field.env_names import KEYS
from golf.lab.plan.flops import flops_per_token
from golf.paths import ROOT, resolve
from golf.settings.config import Config, mlp_hidden, to_dict
from golf.training.data.dataset import is_unbuilt, open_dataset
from golf.training.model.build import shapeless_model

ENDLESS = 1_000_000
# These get other values below; the width of the MLP is passed as its multiple.
NOT_PASSED = ("RUN_ID", "SEED", "MLP_HIDDEN", "MLP_MULT", "WARMUP_STEPS", "TRAIN_LOG_EVERY", "VAL_LOSS_EVERY")
WORK_FDS = "GOLF_BENCH_FDS"
STEP_DONE = b"."


def public_script(given: Path) -> Path:
    """Return the path of `given`, or of the script in the folder `given`. Raises `GolfError` if there is none."""
    script = given / "train_gpt.py" if given.is_dir() else given
    if not script.is_file():
        raise GolfError(f"--against {given}: there is no train_gpt.py; check out a public one there, or name the file.")
    return script.absolute()


def against_rows(script: Path, cfg: Config, rounds: int) -> list[Row]:
    """Return the rows of both scripts' training steps in alternating rounds, with their ratio in the note."""
    if is_unbuilt(cfg.data):
        open_dataset(cfg)
    with timed_steps(script, cfg, "train") as ways:
        seconds = alternate(ways, rounds, torch.device("cpu"), warm_up=1)
    tokens = cfg.data.train_batch_tokens
    flops = flops_per_token(cfg, shapeless_model(cfg)).total * tokens
    what = f"{cfg.name} compile={cfg.launch.compile} {cfg.model.compute_dtype}"
    return _rows(seconds, "script", Row("against", what, [], tokens, flops))


def against_sliding_rows(script: Path, cfg: Config, rounds: int, sequences: int) -> list[Row]:
    """Return rows of the public `eval_val_sliding` and golf's sliding score on the same windows, in alternating rounds.

    Empty if the public script has no such function.
    """
    if "def eval_val_sliding" not in script.read_text(encoding="utf-8"):
        return []
    cfg = with_stride(cfg)
    # The public function scores in the dtype that it trains in.
    cfg.eval.dtype = cfg.model.compute_dtype
    with timed_steps(script, cfg, "sliding", sequences) as ways:
        seconds = alternate(ways, rounds, torch.device("cpu"), warm_up=1)
    what = f"{cfg.name} sliding, stride {cfg.eval.stride}"
    return _rows(seconds, "function", Row("against", what, [], sequences * cfg.data.train_seq_len))


def _rows(seconds: dict[str, list[float]], against: str, row: Row) -> list[Row]:
    """Return `row` for the public script and for golf, whose note is the ratio."""
    note = f"{paired_ratio(seconds['public'], seconds['golf']):.2f} × the public {against}'s tokens/s"
    notes = {"public": "", "golf": note}
    return [dataclasses.replace(row, what=f"{n}: {row.what}", seconds=own, note=notes[n]) for n, own in seconds.items()]


@contextlib.contextmanager
def timed_steps(script: Path, cfg: Config, task: str, sequences: int = 0) -> Iterator[dict[str, Callable[[], object]]]:
    """Start both subprocesses and wait until they are ready. Calling a returned function runs one timed step."""
    with tempfile.TemporaryDirectory() as path, contextlib.ExitStack() as stack:
        folder = Path(path)
        (folder / "config.json").write_text(json.dumps(to_dict(cfg)), encoding="utf-8")
        environment = public_variables(cfg, linked_data(cfg, folder))
        arguments = [task, str(sequences), str(folder / "config.json")]
        public = SteppedProcess("bench.shim", [*arguments, str(script)], environment, folder)
        golf = SteppedProcess("bench.golf_process", arguments, {}, folder)
        ways = {"public": stack.enter_context(public), "golf": stack.enter_context(golf)}
        # Waiting begins after both have been entered: if one fails, the other is ended, too.
        for process in ways.values():
            process.await_pause()
        yield {name: process.run_step for name, process in ways.items()}


def linked_data(cfg: Config, folder: Path) -> Path:
    """Link the run's shards under the names that the public scripts look for, and return the folder."""
    data = folder / "data"
    data.mkdir()
    for pattern, kind in ((cfg.data.train_files, "train"), (cfg.data.val_files, "val")):
        for number, shard in enumerate(sorted(resolve(cfg.data.path).glob(pattern))):
            (data / f"fineweb_{kind}_{number:06d}.bin").symlink_to(shard)
    return data


def public_variables(cfg: Config, data: Path) -> dict[str, str]:
    """Return the variables that set a public script up for this run, with endless steps and no validation."""
    variables = {}
    for name, key in KEYS.items():
        group, _, field = key.partition(".")
        if name in NOT_PASSED or "." in field or (value := getattr(getattr(cfg, group), field, None)) is None:
            continue
        # The public scripts read switches as 0 and 1.
        variables[name] = str(int(value) if isinstance(value, bool) else value)
    hidden, width = mlp_hidden(cfg.model), cfg.model.model_dim
    multiple = hidden / width
    return variables | {
        "DATA_PATH": str(data),
        "TOKENIZER_PATH": str(resolve(cfg.data.tokenizer_path)),
        "MLP_MULT": str(int(multiple) if multiple.is_integer() else multiple),
        "SEED": str(cfg.seed),
        "RUN_ID": "bench",
        "ITERATIONS": str(ENDLESS),
        "MAX_WALLCLOCK_SECONDS": "0",
        "WARMUP_STEPS": "1",
        "VAL_LOSS_EVERY": "0",
        "TRAIN_LOG_EVERY": "1",
    }


class SteppedProcess:
    """A subprocess that waits for a byte before each step. It ends when the pipe closes, so it cannot outlive us."""

    def __init__(self, module: str, arguments: list[str], environment: dict[str, str], folder: Path):
        self.module, self.output = module, folder / f"{module}.log"
        told, tells = os.pipe()
        waits, self._go = os.pipe()
        self._told = told
        environment = {**os.environ, **environment, "PYTHONPATH": str(ROOT), WORK_FDS: f"{waits},{tells}"}
        # Inside a torchrun job these would make the subprocess wait for other ranks.
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
            environment.pop(name, None)
        with self.output.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                cwd=folder,
                env=environment,
                pass_fds=(waits, tells),
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        # With only the child's copies open, reading from a child that has died ends at once.
        os.close(waits)
        os.close(tells)

    def __enter__(self) -> SteppedProcess:
        return self

    def run_step(self) -> None:
        """Run one training step, or one score, and wait until it has ended."""
        os.write(self._go, b"g")
        self.await_pause()

    def await_pause(self) -> None:
        """Wait until the subprocess is ready for a step. Raises `GolfError` with its last line if it ends instead."""
        if os.read(self._told, 1) != STEP_DONE:
            self._process.wait()
            lines = self.output.read_text(errors="replace", encoding="utf-8").strip().splitlines() or [
                "it said nothing"
            ]
            raise GolfError(f"{self.module} ended before its step did: {lines[-1]}")

    def __exit__(self, *_: object) -> None:
        os.close(self._go)
        os.close(self._told)
        self._process.kill()
        self._process.wait()


def pause() -> None:
    """Report the end of a step and wait for the next one; called in the subprocess."""
    waits, tells = map(int, os.environ[WORK_FDS].split(","))
    os.write(tells, STEP_DONE)
    if not os.read(waits, 1):
        # The measuring process is gone. Leave at once: what a script does at its end is not wanted.
        os._exit(0)
