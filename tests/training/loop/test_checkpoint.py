"""A run that is killed goes on from its checkpoint and ends as if nothing had happened."""

import contextlib
import copy
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from golf.errors import GolfError
from golf.run.folder import RunFolder, create_run_folder
from golf.run.result import OK, read_result
from golf.settings.config import Config, StageConfig
from golf.training.loop.checkpoint import Checkpoints, Start, checkpoint_seconds, flatten, unflatten
from golf.training.loop.state import TrainState, build_state
from golf.training.loop.warmup import synthetic_batch
from golf.training.ranks import Ranks
from tests.launch.test_processes import processes_of
from tests.support import ROOT, further, metrics

EVERY_STEP = 1e-9  # seconds


@pytest.fixture
def cfg(tiny_cfg: Config, runs: Path) -> Config:
    tiny_cfg.schedule.iterations, tiny_cfg.budget.train_seconds = 12, 0.0
    tiny_cfg.launch.checkpoint_seconds, tiny_cfg.launch.threads = EVERY_STEP, 1
    return tiny_cfg


def start(folder: RunFolder, ranks: int) -> subprocess.Popen[bytes]:
    """The ranks of a run as a launcher starts them."""
    worker = ["-m", "golf.launch.worker", str(folder.path)]
    torchrun = ["-m", "golf.launch.agent", "--standalone", "--nproc-per-node", str(ranks)]
    command = [sys.executable, *(worker if ranks == 1 else torchrun + worker)]
    with (folder.path / "printed.txt").open("ab") as printed:
        return subprocess.Popen(command, cwd=ROOT, stdout=printed, stderr=printed)


def finish(folder: RunFolder, ranks: int) -> dict[str, torch.Tensor]:
    assert start(folder, ranks).wait(timeout=900) == 0, (folder.path / "printed.txt").read_text()
    assert read_result(folder.result).state == OK
    return load_file(folder.weights)


def kill_at(folder: RunFolder, step: int, ranks: int) -> None:
    """SIGKILL to all processes of the run once `step` steps are logged."""
    process = start(folder, ranks)
    deadline = time.monotonic() + 600
    while not folder.metrics.exists() or max((m["step"] for m in metrics(folder.path, "train")), default=0) < step:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    # Stopped first: a rank whose launcher dies a moment earlier gets SIGTERM and would end as interrupted.
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in processes_of(folder.path):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
    process.wait(timeout=900)
    while processes_of(folder.path):
        assert time.monotonic() < deadline + 30
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    "ranks, dtype, settings",
    [
        (1, "bf16", {"loader": "shuffled", "muon": "sharded", "tech": ["lawa", "recurrence"], "kills": (3, 7)}),
        (2, "bf16", {"loader": "coprime", "muon": "parallel", "tech": ["swa", "recurrence"], "kills": (7,)}),
        further(2, "fp32", {"loader": "sequential", "muon": "sharded", "tech": ["ema"], "kills": (5,)}),
        # Twelve steps: the second stage has the fifth to the eighth.
        further(2, "bf16", {"loader": "packed_shuffled", "muon": "sharded", "tech": [], "kills": (6,), "stages": True}),
        # Masks are drawn anew in every step.
        (
            2,
            "fp32",
            {"loader": "shuffled", "muon": "sharded", "tech": ["masked_diffusion"], "kills": (6,), "stages": True},
        ),
    ],
)
def test_killed_and_started_again_equals_uninterrupted(cfg: Config, ranks: int, dtype: str, settings: dict) -> None:
    from golf.registry import technique_types

    cfg.data.loader, cfg.optim.muon, cfg.launch.nproc = settings["loader"], settings["muon"], ranks
    cfg.model.within_documents = cfg.eval.documents = settings["loader"].startswith("packed")
    cfg.model.compute_dtype = dtype
    if "stages" in settings:
        cfg.schedule.stages = [StageConfig(0.3, 8), StageConfig(0.6, 16, 1024), StageConfig()]
    sooner: dict[str, dict[str, Any]] = {"swa": {"every": 1, "start": 1.0}, "lawa": {"every": 3, "count": 3}}
    sooner["recurrence"] = {"first": 1, "last": 2, "enable_at": 0.4}
    cfg.tech = {name: technique_types()[name](**sooner.get(name, {})) for name in settings["tech"]}
    cfg.launch.train_log_every, cfg.schedule.warmdown_iters = 1, 6
    undisturbed, killed = create_run_folder(cfg, []), create_run_folder(cfg, [])
    expected = finish(undisturbed, ranks)
    for step in settings["kills"]:
        kill_at(killed, step, ranks)
    weights = finish(killed, ranks)
    resumed = [event["step"] for event in metrics(killed.path, "resumed")]
    assert len(resumed) == len(settings["kills"])
    assert all(step - 1 <= found < 12 for step, found in zip(settings["kills"], resumed, strict=True))
    assert [name for name, tensor in expected.items() if not torch.equal(weights[name], tensor)] == []
    losses = {m["step"]: m["train_loss"] for m in metrics(undisturbed.path, "train")}
    assert {m["step"]: m["train_loss"] for m in metrics(killed.path, "train")} == losses


@pytest.mark.slow
def test_seconds_already_used_stay_on_the_clock(cfg: Config) -> None:
    folder = create_run_folder(cfg, [])
    kill_at(folder, 5, 1)
    saved = json.loads((folder.path / "checkpoint/latest.json").read_text())
    finish(folder, 1)
    assert read_result(folder.result).train_seconds > saved["train_seconds"] > 0
    assert metrics(folder.path, "resumed")[0]["train_seconds"] == pytest.approx(saved["train_seconds"], abs=1e-4)


@pytest.mark.slow
def test_a_damaged_checkpoint_or_another_number_of_ranks_is_one_sentence(cfg: Config) -> None:
    folder = create_run_folder(cfg, [])
    kill_at(folder, 5, 1)
    latest = folder.path / "checkpoint/latest.json"
    values = json.loads(latest.read_text())
    latest.write_text(json.dumps({**values, "ranks": 2}))
    assert start(folder, 1).wait(timeout=900) == 1
    assert "is of 2 ranks, and this run has 1" in read_result(folder.result).reason
    folder.error.unlink()
    folder.result.unlink()  # as a job that resumes does
    latest.write_text(json.dumps(values))
    part = folder.path / f"checkpoint/step{values['step']}/rank0.safetensors"
    part.write_bytes(part.read_bytes()[:100])
    assert start(folder, 1).wait(timeout=900) == 1
    assert "cannot be read" in read_result(folder.result).reason


def test_a_rank_of_an_earlier_start_writes_no_state_into_a_resumed_run(cfg: Config) -> None:
    folder, state = create_run_folder(cfg, []), build_state(cfg, Ranks())

    def files() -> dict[str, bytes]:
        kept = folder.checkpoint.rglob("*.*")
        return {path.relative_to(folder.path).as_posix(): path.read_bytes() for path in kept}

    folder.begin()
    survivor = Checkpoints(cfg, folder, state, "data")
    survivor.save(Start(step=3))
    folder.begin()
    saved = files()
    assert saved.keys() == {"checkpoint/latest.json", "checkpoint/step3/rank0.safetensors"}
    for parameter in state.model.parameters():
        parameter.data.add_(1.0)
    for step in (3, 4):
        with pytest.raises(GolfError, match="was started again by another process"):
            survivor.save(Start(step=step))
        assert files() == saved
    Checkpoints(cfg, folder, state, "data").save(Start(step=4))
    assert files().keys() == {"checkpoint/latest.json", "checkpoint/step4/rank0.safetensors"}


def test_a_checkpoint_counts_once_every_rank_has_written_its_file(cfg: Config) -> None:
    class WithoutTheOther(Ranks):
        def barrier(self) -> None:
            raise RuntimeError("connection closed by peer")

    folder, state = trained_and_saved(cfg)
    saved = Checkpoints(cfg, folder, state, "data")
    saved.ranks = WithoutTheOther()
    with pytest.raises(RuntimeError, match="closed by peer"):
        saved.save(Start(step=2))
    assert Checkpoints(cfg, folder, state, "data").load().step == 1


def trained_and_saved(cfg: Config) -> tuple[RunFolder, TrainState]:
    """Return a run folder with a checkpoint after one step, and the state that was saved."""
    folder, state = create_run_folder(cfg, []), build_state(cfg, Ranks())
    state.step(lambda: synthetic_batch(cfg), 1.0, 0.9)
    Checkpoints(cfg, folder, state, "data").save(Start(step=1))
    return folder, state


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("muon", ["sharded", "parallel"])
def test_the_step_after_a_resume_is_the_one_without(cfg: Config, muon: str, dtype: str) -> None:
    cfg.optim.muon, cfg.model.compute_dtype = muon, dtype
    folder, state = trained_and_saved(cfg)
    other = build_state(cfg, Ranks())
    Checkpoints(cfg, folder, other, "data").load()
    batches = [synthetic_batch(cfg) for _ in range(cfg.data.micro_batches)]
    for one in (state, other):
        one.step(iter(batches).__next__, 1.0, 0.9)
    for name, tensor in state.model.state_dict().items():
        assert torch.equal(tensor, other.model.state_dict()[name]), name


def test_a_full_disk_is_one_sentence_and_the_checkpoint_before_stays(cfg: Config) -> None:
    folder, state = trained_and_saved(cfg)
    saved = Checkpoints(cfg, folder, state, "data")
    limits, before = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        with pytest.raises(
            GolfError, match=r"cannot be written .*: a file may not be that large here: raise the limit of `ulimit -f`"
        ):
            saved.save(Start(step=2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert saved.load().step == 1
    assert [file.name for file in folder.checkpoint.rglob("*") if "step2" in str(file)] == ["step2"], (
        "no part of a file"
    )


def load_error(cfg: Config, folder: RunFolder, data: str = "data") -> str:
    """The sentence with which a run refuses the checkpoint in `folder`."""
    with pytest.raises(GolfError) as caught:
        Checkpoints(cfg, folder, build_state(cfg, Ranks()), data).load()
    assert "or give launch.fresh=true to start over" in str(caught.value) and "\n" not in str(caught.value)
    return str(caught.value)


def saved_at_step_three(cfg: Config) -> tuple[RunFolder, TrainState]:
    """Return a run folder with a checkpoint in which the optimizers have momentum, and the state that was saved."""
    folder, state = create_run_folder(cfg, []), build_state(cfg, Ranks())
    for parameter in state.model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    state.step.optimizer.step()
    Checkpoints(cfg, folder, state, "data").save(Start(step=3))
    return folder, state


def test_a_checkpoint_that_does_not_fit_is_one_sentence_and_other_code_is_noted(
    cfg: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, state = saved_at_step_three(cfg)
    latest = folder.checkpoint / "latest.json"
    saved = json.loads(latest.read_text())
    assert "trained on data with fingerprint data, and the data is other now" in load_error(cfg, folder, "other")

    for damaged in ("", "[]", "3", '{"ranks": 1, "active": [], "wrong": 1}', '{"step": 1}'):
        latest.write_text(damaged)
        assert "latest.json cannot be read" in load_error(cfg, folder)
    latest.write_text(json.dumps(saved))
    file = folder.checkpoint / "step3" / "rank0.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-40] + bytes(255 - byte for byte in whole[-40:-20]) + whole[-20:])
    assert "its bytes have changed since it was written" in load_error(cfg, folder)
    file.write_bytes(whole)
    wider = copy.deepcopy(cfg)
    wider.model.mlp_hidden = 48
    assert "does not fit this run" in load_error(wider, folder)

    kept = Checkpoints(cfg, folder, state, "data")
    assert kept.load().step == 3 and not kept.is_of_other_code
    compiled = copy.deepcopy(cfg)
    compiled.launch.compile = "full"
    other = Checkpoints(compiled, folder, state, "data")
    assert other.load().step == 3 and other.is_of_other_code
    monkeypatch.setattr("golf.training.loop.checkpoint.own_code", lambda: "0123456789ab")
    edited = Checkpoints(cfg, folder, state, "data")
    assert edited.load().step == 3 and edited.is_of_other_code
    latest.write_text(json.dumps({key: value for key, value in saved.items() if key not in ("data", "code")}))
    older = Checkpoints(cfg, folder, state, "other")
    assert older.load().step == 3 and not older.is_of_other_code, "earlier versions wrote neither"


@pytest.mark.parametrize("muon", ["sharded", "parallel"])
@pytest.mark.parametrize("part", ["muon/", "exp_avg_sq/"])
def test_state_of_another_optimizer_is_refused_at_the_resume(cfg: Config, muon: str, part: str) -> None:
    cfg.optim.muon = muon
    folder, _ = saved_at_step_three(cfg)
    file = folder.checkpoint / "step3/rank0.safetensors"
    # Copies, because the tensors lie in the file, which is written over.
    saved = {name: tensor.clone() for name, tensor in load_file(file).items()}
    name = next(name for name in saved if part in name)
    without = {key: tensor for key, tensor in saved.items() if key != name}
    several = {key: tensor for key, tensor in saved.items() if part not in key}
    for damaged in (
        {**saved, name: saved[name][..., :-1].contiguous()},
        {**saved, name: saved[name].half()},
        {**without, name.replace(part, part.replace("/", "", 1)): saved[name]},
        without,
        several,
    ):
        save_file(damaged, file)
        owner = "Muon is" if part == "muon/" else "Adam is"
        assert "does not fit this run" in (refused := load_error(cfg, folder)) and owner in refused
    save_file({key: tensor for key, tensor in saved.items() if key.split("/")[0] not in ("muon", "adams")}, file)
    assert "does not fit this run" in load_error(cfg, folder)


def test_short_runs_have_no_checkpoints_and_long_ones_do(tiny_cfg: Config) -> None:
    tiny_cfg.launch.checkpoint_seconds, tiny_cfg.budget.train_seconds = None, 600.0
    assert checkpoint_seconds(tiny_cfg) == 0
    tiny_cfg.budget.train_seconds = 0.0
    assert checkpoint_seconds(tiny_cfg) == 600
    tiny_cfg.launch.checkpoint_seconds = 0.0
    assert checkpoint_seconds(tiny_cfg) == 0


tensors = st.integers(0, 3).map(lambda n: torch.arange(n).float())
names = st.text("abcxyz_.", min_size=1, max_size=5)


@given(st.dictionaries(names, st.one_of(tensors, st.lists(tensors, min_size=1, max_size=12)), min_size=1))
def test_flatten_has_an_inverse(tree: dict) -> None:
    back = unflatten(flatten(tree))
    torch.testing.assert_close(back, tree)
