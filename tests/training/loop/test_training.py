"""The timed loop on a clock that the test moves, and the public trajectory over 24 steps."""

import dataclasses
import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from golf.bits import Score
from golf.lab.corpora.own_text import OwnDataset
from golf.run.folder import RunFolder
from golf.run.runlog import RunLog
from golf.settings.config import Config
from golf.training.data.dataset import open_dataset
from golf.training.data.loader import SequentialLoader
from golf.training.loop import clock as clock_module
from golf.training.loop import training
from golf.training.loop.checkpoint import Start
from golf.training.loop.clock import RunClock
from golf.training.loop.schedule import decays_from_the_start
from golf.training.loop.state import TrainState
from golf.training.loop.steps import TrainStep
from golf.training.loop.switches import StepHooks, Switches
from golf.training.loop.training import Training, train
from golf.training.model.build import build_model, shapeless_model
from golf.training.optim.groups import build_optimizer
from golf.training.ranks import ALONE, Ranks
from golf.training.scoring.scorer import Scorer
from tests.support import PARITY, compose, metrics, parity, tiny_overrides


class FakeTime:
    """Stands in for the module `time`: every training step and every validation takes what the test says."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def fake_time(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    fake = FakeTime()
    monkeypatch.setattr(clock_module, "time", fake)
    return fake


def run_loop(
    cfg: Config,
    folder: Path,
    fake_time: FakeTime,
    step_seconds: float,
    loss: float = 2.0,
    *,
    clock: RunClock | None = None,
    checkpoints: Any = None,
) -> Training:
    """The loop with steps that only move the clock, by half as much again where a switch is on."""

    class FakeStep:
        ranks = Ranks()
        optimizer = build_optimizer(cfg, shapeless_model(cfg))

        def __call__(self, *given: object) -> torch.Tensor:
            fake_time.now += 1.5 * step_seconds if given[-1] else step_seconds
            return torch.tensor(loss)

    def validate(last: bool) -> Score:
        fake_time.now += 100.0
        return Score(loss, loss, 1, 1, 0.0)

    log = RunLog(RunFolder(folder), cfg, is_first=True)
    dataset = open_dataset(cfg)
    loader = SequentialLoader(dataset.train, local_tokens=32, seq_len=32, vocab_size=320)
    try:
        switches, hooks = Switches(cfg), StepHooks(cfg, build_model(cfg))
        state = TrainState(FakeStep(), switches, hooks)  # type: ignore[arg-type]
        log.warning_at = functools.partial(decays_from_the_start, cfg)
        return train(cfg, state, loader, validate, log, clock or RunClock(ALONE), checkpoints)
    finally:
        log.close()


def test_stops_before_the_step_that_would_not_fit(tiny_cfg: Config, tmp_path: Path, fake_time: FakeTime) -> None:
    tiny_cfg.budget.train_seconds, tiny_cfg.schedule.iterations = 10.0, 1000
    done = run_loop(tiny_cfg, tmp_path, fake_time, step_seconds=0.3)
    assert done.steps == 33 and done.seconds == pytest.approx(9.9)
    assert "stopping_early: wallclock_cap train_time:9900ms step:33/1000" in (tmp_path / "train.log").read_text()


def test_steps_that_a_switch_makes_longer_are_judged_by_their_own_length(
    tiny: OwnDataset, tmp_path: Path, fake_time: FakeTime
) -> None:
    """By the mean of all steps one more was begun, and the run ended after its budget."""
    cfg = compose([*tiny_overrides(tiny), "tech=[recurrence]", "tech.recurrence.enable_at=0.5"])
    cfg.budget.train_seconds, cfg.schedule.iterations = 10.0, 1000
    done = run_loop(cfg, tmp_path, fake_time, step_seconds=0.3)
    assert done.seconds <= 10 and done.seconds + 0.45 > 10


def test_validation_does_not_use_the_clock(tiny_cfg: Config, tmp_path: Path, fake_time: FakeTime) -> None:
    tiny_cfg.eval.val_loss_every = 2
    done = run_loop(tiny_cfg, tmp_path, fake_time, step_seconds=1.0)
    assert done.seconds == pytest.approx(6.0)
    assert [(v["step"], v["train_seconds"]) for v in metrics(tmp_path, "validation")] == [
        (0, 0),
        (2, 2),
        (4, 4),
        (6, 6),
    ]


def test_what_ranks_do_together_goes_by_the_clock_of_the_first(
    tiny_cfg: Config, tmp_path: Path, fake_time: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkpoints, rates and switches: every reading that decides is rank 0's, which is far ahead here."""
    asked: dict[str, float] = {}

    class Behind(RunClock):
        def agreed_seconds(self, *, exact: bool = False) -> float:
            return self.seconds + 1000

    class Asked:
        start = Start()

        def is_due(self, seconds: float) -> bool:
            asked["checkpoint"] = seconds
            return False

    def multiplier(cfg: Config, step: int, seconds: float) -> float:
        asked["rate"] = seconds
        return 1.0

    plain = training.progress_fraction

    def fraction(cfg: Config, step: int, seconds: float) -> float:
        asked["progress"] = seconds
        return plain(cfg, step, seconds)

    monkeypatch.setattr(training, "lr_multiplier", multiplier)
    monkeypatch.setattr(training, "progress_fraction", fraction)
    tiny_cfg.eval.val_loss_every, tiny_cfg.budget.train_seconds = 2, 1e6
    done = run_loop(tiny_cfg, tmp_path, fake_time, 100.0, clock=Behind(ALONE), checkpoints=Asked())
    assert done.steps == 6 and asked.keys() == {"checkpoint", "rate", "progress"} and min(asked.values()) >= 1000


def test_step_cap_ends_the_run_and_the_last_weights_are_scored(
    tiny_cfg: Config, tmp_path: Path, fake_time: FakeTime
) -> None:
    tiny_cfg.eval.val_loss_every = 0
    done = run_loop(tiny_cfg, tmp_path, fake_time, step_seconds=1.0)
    assert done.steps == 6 and done.score is not None and not done.diverged
    assert [v["step"] for v in metrics(tmp_path, "validation")] == [6]


@pytest.mark.parametrize(("warmdown_iters", "warnings"), [(33, 0), (34, 1)])
def test_a_warmdown_longer_than_the_run_is_warned_about_once(
    warmdown_iters: int,
    warnings: int,
    tiny_cfg: Config,
    tmp_path: Path,
    fake_time: FakeTime,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tiny_cfg.budget.train_seconds, tiny_cfg.schedule.iterations = 10.0, 1000
    tiny_cfg.schedule.warmdown_iters = warmdown_iters
    run_loop(tiny_cfg, tmp_path, fake_time, step_seconds=0.3)
    for text in ((tmp_path / "train.log").read_text(), capsys.readouterr().out):
        assert text.count("warning: ") == warnings
        assert text.count(f"warmdown_iters={warmdown_iters} is 1.0 times the run") == warnings


def test_a_loss_that_is_no_number_ends_the_run(tiny_cfg: Config, tmp_path: Path, fake_time: FakeTime) -> None:
    tiny_cfg.eval.val_loss_every = 0
    done = run_loop(tiny_cfg, tmp_path, fake_time, step_seconds=1.0, loss=float("nan"))
    assert done.diverged and done.steps == 1 and done.score is None
    assert done.why_diverged() == "the loss was nan at step 1"


def test_a_score_that_is_no_number_is_said_to_be_one(tiny_cfg: Config, tmp_path: Path, fake_time: FakeTime) -> None:
    """It was once said that the last logged loss, a number, was none."""
    done = run_loop(tiny_cfg, tmp_path, fake_time, step_seconds=1.0)
    assert done.score is not None
    lost = dataclasses.replace(done, score=dataclasses.replace(done.score, val_loss=float("nan")))
    assert lost.why_diverged() == f"the validation loss was nan at step {done.steps}"


@pytest.mark.parametrize("muon_dtype", ["bf16"])
def test_public_trajectory(muon_dtype: str) -> None:
    """24 steps of the public baseline, within 1e-3 of each loss.

    The bound is relative: Newton-Schulz in bf16 turns rounding noise of 1e-7 in the gradients into 1e-3 nats (3e-4 to
    7e-4 of the loss, over 40 draws), so CPUs of different kinds cannot agree better than that.
    """
    arrays, settings = parity("trajectory_baseline")
    cfg = trajectory_config(settings)
    cfg.optim.muon_dtype = muon_dtype
    model, dataset = build_model(cfg), open_dataset(cfg)
    model.load_state_dict({k[5:]: torch.from_numpy(v) for k, v in arrays.items() if k.startswith("init/")})
    step = TrainStep(cfg, model, build_optimizer(cfg, model), Ranks())
    loader = SequentialLoader(dataset.train, local_tokens=256, seq_len=32, vocab_size=400)
    score = Scorer(cfg, dataset, Ranks())
    first = score(model.state_dict())
    multipliers, momenta = arrays["lr_mult"], arrays["momentum"]
    losses = [step(loader.next_batch, multipliers[i], momenta[i]).item() for i in range(24)]
    last = score(model.state_dict())
    assert np.max(np.abs(losses - arrays["train_loss"]) / arrays["train_loss"]) < 1e-3
    for found, expected in ((first, arrays["val_first"]), (last, arrays["val_last"])):
        assert (found.val_loss, found.val_bpb) == pytest.approx(tuple(expected[:2]), rel=1e-3)
        assert (found.tokens, found.bytes) == tuple(expected[2:])
    for name, param in model.named_parameters():
        assert param.norm().item() == pytest.approx(float(arrays[f"norm_final/{name}"]), rel=1e-2)


def trajectory_config(settings: dict) -> Config:
    """The parity case's configuration in our terms."""
    cfg = Config()
    for key, value in settings["model"].items():
        setattr(cfg.model, key, value)
    cfg.model.compute_dtype, cfg.eval.dtype, cfg.launch.compile = "fp32", "fp32", "off"
    cfg.launch.device = "cpu"
    cfg.data.path = str(PARITY / "tiny_dataset")
    cfg.data.tokenizer_path = str(PARITY / "tiny_dataset/tiny_400_bpe.model")
    cfg.data.vocab_size = settings["vocab"]
    cfg.data.train_batch_tokens, cfg.data.train_seq_len = settings["tokens"], settings["seq_len"]
    cfg.eval.val_batch_tokens = 4096
    return cfg
