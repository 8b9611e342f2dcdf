"""A public `train_gpt.py` beside golf: same data, shape, batch, numbers and compile setting, step by step in turns.

Both are processes that do one step whenever they are told to. The public file is run as it is, set up through its own
environment variables; `bench/shim.py` stands between it and a machine without a GPU.
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

from bench.machine import Machine
from bench.scoring import with_stride
from bench.table import Row
from bench.turns import paired_ratio, take_turns
from golf.errors import GolfError
from golf.paths import ROOT, resolve
from golf.plan.flops import flops_per_token
from golf.settings.config import Config, mlp_hidden, to_dict
from golf.settings.env_vars import KEYS
from golf.training.data.dataset import is_unbuilt, open_dataset
from golf.training.model.build import shapeless_model

ENDLESS = 1_000_000
NOT_PASSED = ("RUN_ID", "SEED", "MLP_HIDDEN", "MLP_MULT", "WARMUP_STEPS", "TRAIN_LOG_EVERY", "VAL_LOSS_EVERY")
WORK_FDS = "GOLF_BENCH_FDS"
END_OF_TURN = b"."


def public_script(given: Path) -> Path:
    """The script itself, or the one in the folder that is `given`."""
    script = given / "train_gpt.py" if given.is_dir() else given
    if not script.is_file():
        raise GolfError(f"--against {given}: there is no train_gpt.py; check out a public one there, or name the file.")
    return script.absolute()


def against_rows(script: Path, cfg: Config, machine: Machine, device: torch.device, rounds: int) -> list[Row]:
    """Training steps of both, in turns; the ratio in the note."""
    if is_unbuilt(cfg.data):
        open_dataset(cfg)
    with contents(script, cfg, "train") as ways:
        seconds = take_turns(ways, rounds, torch.device("cpu"), warm_up=1)
    tokens, dtype = cfg.data.train_batch_tokens, cfg.model.compute_dtype
    flops = flops_per_token(cfg, shapeless_model(cfg)).total * tokens
    what = f"{cfg.name} compile={cfg.launch.compile} {dtype}"
    rows = [Row("against", f"{name}: {what}", own, tokens, flops, dtype) for name, own in seconds.items()]
    note = f"{paired_ratio(seconds['public'], seconds['golf']):.2f} × the public script's tokens/s"
    return [rows[0], dataclasses.replace(rows[1], note=note)]


def against_sliding_rows(script: Path, cfg: Config, rounds: int, sequences: int) -> list[Row]:
    """The public `eval_val_sliding` and golf's sliding score over the same windows, in turns; none if it has none."""
    if "def eval_val_sliding" not in script.read_text():
        return []
    cfg = with_stride(cfg)
    cfg.eval.dtype = cfg.model.compute_dtype  # the public function scores in what it trains in
    with contents(script, cfg, "sliding", sequences) as ways:
        seconds = take_turns(ways, rounds, torch.device("cpu"), warm_up=1)
    tokens, what = sequences * cfg.data.train_seq_len, f"{cfg.name} sliding, stride {cfg.eval.stride}"
    rows = [Row("against", f"{name}: {what}", own, tokens) for name, own in seconds.items()]
    note = f"{paired_ratio(seconds['public'], seconds['golf']):.2f} × the public function's tokens/s"
    return [rows[0], dataclasses.replace(rows[1], note=note)]


@contextlib.contextmanager
def contents(script: Path, cfg: Config, task: str, sequences: int = 0) -> Iterator[dict[str, Callable[[], object]]]:
    """Both processes at their first pause, as functions that let them go on to the next."""
    with tempfile.TemporaryDirectory() as path, contextlib.ExitStack() as stack:
        folder = Path(path)
        (folder / "config.json").write_text(json.dumps(to_dict(cfg)))
        environment = public_variables(cfg, linked_data(cfg, folder))
        arguments = [task, str(sequences), str(folder / "config.json")]
        public = Contestant("bench.shim", [*arguments, str(script)], environment, folder)
        golf = Contestant("bench.contestant", arguments, {}, folder)
        ways = {"public": stack.enter_context(public), "golf": stack.enter_context(golf)}
        for contestant in ways.values():  # after both have been entered: if one fails, the other is ended, too
            contestant.await_pause()
        yield {name: contestant.turn for name, contestant in ways.items()}


def linked_data(cfg: Config, folder: Path) -> Path:
    """The run's shards under the names that the public scripts look for."""
    data = folder / "data"
    data.mkdir()
    for pattern, kind in ((cfg.data.train_files, "train"), (cfg.data.val_files, "val")):
        for number, shard in enumerate(sorted(resolve(cfg.data.path).glob(pattern))):
            (data / f"fineweb_{kind}_{number:06d}.bin").symlink_to(shard)
    return data


def public_variables(cfg: Config, data: Path) -> dict[str, str]:
    """The environment variables of the public scripts that make their run this one, without an end or a validation."""
    variables = {}
    for name, key in KEYS.items():
        group, _, field = key.partition(".")
        if name in NOT_PASSED or "." in field or (value := getattr(getattr(cfg, group), field, None)) is None:
            continue
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


class Contestant:
    """A process that works in turns: it waits after each for a byte, and ends when there is nobody left to send one."""

    def __init__(self, module: str, arguments: list[str], environment: dict[str, str], folder: Path):
        self.module, self.output = module, folder / f"{module}.log"
        told, tells = os.pipe()
        waits, self._go = os.pipe()
        self._told = told
        environment = {**os.environ, **environment, "PYTHONPATH": str(ROOT), WORK_FDS: f"{waits},{tells}"}
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
        os.close(waits)
        os.close(tells)

    def __enter__(self) -> Contestant:
        return self

    def turn(self) -> None:
        """One step, or one score."""
        os.write(self._go, b"g")
        self.await_pause()

    def await_pause(self) -> None:
        """Until it has prepared itself, or its turn is over; raises `GolfError` if it ends instead."""
        if os.read(self._told, 1) != END_OF_TURN:
            self._process.wait()
            lines = self.output.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
            raise GolfError(f"{self.module} ended before its turn did: {lines[-1]}")

    def __exit__(self, *_: object) -> None:
        os.close(self._go)
        os.close(self._told)
        self._process.kill()
        self._process.wait()


def pause() -> None:
    """In a contestant: the turn is over; wait for the next one."""
    waits, tells = map(int, os.environ[WORK_FDS].split(","))
    os.write(tells, END_OF_TURN)
    if not os.read(waits, 1):
        os._exit(0)  # whoever measures is gone; what a script does when it ends is not wanted
