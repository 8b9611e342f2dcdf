"""What tests share besides fixtures: the shared parity cases, tiny text and runs, and runs of the command line."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import io
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from golf.errors import GolfError
from golf.lab.corpora.own_text import OwnDataset
from golf.lab.proofs.run_proofs import RandomPasses
from golf.registry import CHANGES_ORDER, CHANGES_SCORE, technique_types
from golf.settings import composition, hardware
from golf.settings.config import Config, LaunchConfig, techniques
from golf.settings.hardware import Hardware
from golf.training.loop.warmup import synthetic_batch
from golf.training.model.attention import cpu_kernels
from golf.training.model.build import build_model, compile_for_training
from golf.training.optim.rules import optimizers_of_groups

ROOT = Path(__file__).resolve().parents[1]
PARITY = ROOT.parent / "shared" / "parity"
WORDS = [
    "the",
    "a",
    "model",
    "token",
    "byte",
    "loss",
    "step",
    "seed",
    "of",
    "is",
    "was",
    "fast",
    "1",
    "22",
    "333",
    "ü",
    "漢",
]


def parity(name: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays and configuration of a shared parity case; the test is skipped where the folder is not."""
    if not PARITY.is_dir():
        pytest.skip("needs ../shared/parity, which is not beside this checkout")
    config = json.loads((PARITY / f"{name}.json").read_text())
    # A case of names and settings alone has no arrays.
    if not (PARITY / f"{name}.npz").exists():
        return {}, config
    with np.load(PARITY / f"{name}.npz") as arrays:
        return dict(arrays), config


def make_text(sentences: int, seed: int) -> str:
    """Random sentences of a small vocabulary, the same everywhere."""
    generator = random.Random(seed)
    return "\n".join(" ".join(generator.choices(WORDS, k=12)) for _ in range(sentences))


_COMPOSED: dict[tuple[tuple[str, ...], Hardware, Path], Config] = {}


def compose(overrides: Sequence[str] = ()) -> Config:
    """Return a configuration of the test's own, as `golf.compose` does. Equal overrides are composed once a session."""
    # Hydra takes a tenth of a second, and hundreds of tests compose the same few lists. The choices for the machine
    # depend on the hardware and on the presence of FineWeb, which tests replace.
    key = (tuple(overrides), hardware.detect(), hardware.FINEWEB_VAL)
    if key not in _COMPOSED:
        _COMPOSED[key] = composition.compose(overrides)
    return copy.deepcopy(_COMPOSED[key])


def tiny_overrides(tiny: OwnDataset) -> list[str]:
    """A run of a few steps that takes a second: step-capped, eager, float32, one rank."""
    return [
        "scale=laptop",
        "model=4l",
        "data=own",
        f"data.path={tiny.folder}",
        f"data.tokenizer_path={tiny.tokenizer_path}",
        f"data.vocab_size={tiny.vocab_size}",
        "data.train_batch_tokens=512",
        "data.train_seq_len=32",
        "data.micro_batches=4",
        "model.model_dim=32",
        "model.compute_dtype=fp32",
        "optim.muon_dtype=fp32",
        "eval.dtype=fp32",
        "eval.val_batch_tokens=512",
        "quant.small_numel=256",
        "schedule.iterations=6",
        "schedule.warmup_steps=2",
        "eval.val_at_start=true",
        "schedule.warmdown_iters=2",
        "budget.train_seconds=0",
        "launch.device=cpu",
        "launch.compile=off",
        "launch.threads=1",  # tests run side by side
        "rules.code_bytes=estimate",  # the script of every run of every test would take minutes
    ]


def finished_overrides(tiny: OwnDataset) -> list[str]:
    """Return the overrides of the fixture `finished_run`."""
    return [*tiny_overrides(tiny), "optim.matrix_lr=0.033", "seed=7"]


def techniques_of_models() -> list[str]:
    """Return the names of all techniques but those that need a setting beside them: loader, stride, number format."""
    types: dict[str, Any] = {**technique_types()}
    apart = (CHANGES_ORDER, CHANGES_SCORE)
    return sorted(n for n, kind in types.items() if kind.effect not in apart and not kind().number_format())


def assert_compiled_is_eager(cfg: Config, mode: str) -> None:
    """Compare loss and gradients of a model under `launch.compile=mode` with those of eager code."""
    eager, compiled = build_model(cfg), build_model(cfg)
    for p in eager.parameters():
        p.data += 0.1 * torch.randn_like(p)
    compiled.load_state_dict(eager.state_dict())
    compile_for_training(compiled, LaunchConfig(compile=mode))
    inputs, targets = synthetic_batch(cfg)
    losses = [model(inputs, targets) for model in (eager, compiled)]
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-5)
    for loss in losses:
        loss.backward()
    for p, q in zip(eager.parameters(), compiled.parameters(), strict=True):
        assert p.grad is not None and q.grad is not None
        assert (q.grad - p.grad).norm() <= 1e-4 * p.grad.norm() + 1e-7


def compatible_stacks(names: Iterable[str] | None = None) -> list[list[str]]:
    """Return techniques of models, all if none are named, in few stacks without conflicts; each is in one."""
    types: dict[str, Any] = {**technique_types()}
    stacks: list[list[str]] = []
    for name in sorted({*techniques_of_models()} & {*(types if names is None else names)}):
        wanted = [name, *types[name].requires]
        for stack in [*stacks, []]:
            if not any(_exclude(types[one], types[other]) for one in wanted for other in stack):
                stack += [other for other in wanted if other not in stack]
                break
        if stack not in stacks:
            stacks.append(stack)
    return stacks


def _exclude(one: Any, other: Any) -> bool:
    """Tell whether two techniques refuse each other, or one trains the matrices for which the other has a rule."""
    try:
        optimizers_of_groups([one(), other()], Config())
    except GolfError:
        return True
    return one.name in other.conflicts or other.name in one.conflicts


@cpu_kernels()
def inert_techniques(cfg: Config) -> list[str]:
    """Return a sentence for every selected technique without its declared effect on `cfg`'s model."""
    passes = RandomPasses(cfg)
    return [failure for technique in techniques(cfg) for failure in passes.inert(technique)]


def with_techniques(cfg: Config, *planted: Any) -> Config:
    """Return `cfg` with techniques of the test's own selected, too."""
    return dataclasses.replace(cfg, tech={**cfg.tech, **{technique.name: technique for technique in planted}})


def refusal(*overrides: str) -> str:
    """Return the sentence with which a configuration or its inputs are refused before anything runs."""
    from golf.launch.preflight import check_inputs

    with pytest.raises(GolfError) as refused:
        check_inputs(composition.compose(overrides))
    return str(refused.value)


def golf_train(*overrides: str, cwd: Path = ROOT, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    """`python golf/train.py` as a person starts it."""
    command = [sys.executable, str(ROOT / "golf/train.py"), *overrides]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, timeout=900, **kwargs)


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class FinishedRun:
    """A run that several tests read, so none may change its files."""

    command: Done
    folder: Path


def golf_main(*overrides: str) -> Done:
    """`golf/train.py` in this process: everything but the start of an interpreter, which takes seconds."""
    from golf import train

    return _in_process(train.command_line, ["golf/train.py", *overrides])


def golf_command(*arguments: str) -> Done:
    """Run `golf <arguments>` in this process."""
    from golf.commands import cli

    return _in_process(cli.main, ["golf", *arguments])


def _in_process(main: Callable[[], int], argv: list[str]) -> Done:
    before = dict(os.environ), sys.argv
    out, err = io.StringIO(), io.StringIO()
    sys.argv = argv
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main()
    finally:
        os.environ.clear()
        os.environ.update(before[0])
        sys.argv = before[1]
    return Done(status, out.getvalue(), err.getvalue())


def only_run(runs: Path) -> Path:
    """The folder of the one run under `runs`."""
    (folder,) = runs.glob("*/seed*")
    return folder


def metrics(folder: Path, event: str) -> list[dict[str, Any]]:
    """Events of a kind in a run's metrics.jsonl."""
    events = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [e for e in events if e["event"] == event]


def on_ranks(world_size: int, tmp_path: Path, function: Callable[..., Any], *args: Any) -> list[Any]:
    """What `function(rank, world_size, *args)` of a test module returns on each of several real processes (gloo)."""
    folder = tmp_path / f"{function.__name__}-{world_size}"
    folder.mkdir()
    torch.multiprocessing.spawn(_be_rank, (world_size, folder, function, args), nprocs=world_size)
    return [torch.load(folder / f"{rank}.pt") for rank in range(world_size)]


def _be_rank(rank: int, world_size: int, folder: Path, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    rendezvous = f"file://{folder}/rendezvous"
    torch.distributed.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=world_size)
    torch.save(function(rank, world_size, *args), folder / f"{rank}.pt")
    torch.distributed.destroy_process_group()
    # As `golf.training.ranks.end_rank`: Gloo's threads can abort an interpreter that is being taken down.
    os._exit(0)


def further(*values: Any) -> Any:
    """Return the parameters of a further case of a slow test, which `make test-exhaustive` runs alone."""
    return pytest.param(*values, marks=pytest.mark.exhaustive)
