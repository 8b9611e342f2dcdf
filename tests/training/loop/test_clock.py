"""The clock of training against a device that works behind the host, and against ranks with clocks of their own."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from golf.run.progress import Progress
from golf.settings.config import Config
from golf.training.data.dataset import Dataset
from golf.training.loop import clock, pace
from golf.training.loop.clock import TrainClock
from golf.training.loop.switches import Switches
from golf.training.model.build import build_model
from golf.training.model.kernels import trial
from golf.training.ranks import Ranks
from golf.training.scoring import tally
from golf.training.scoring.scorer import Scorer
from tests.support import OwnDataset, compose, tiny_overrides
from tests.training.scoring.small import small_tally, small_tokens

ACTIONS = st.lists(st.tuples(st.sampled_from(["host", "queue", "read", "pause"]), st.integers(1, 9)), max_size=12)


class Device(Ranks):
    """A rank whose device needs seconds for what is queued; its own clock and rank 0's differ."""

    now = 0.0  # of this host
    queued = 0.0
    ahead = 100.0  # of rank 0's clock of training

    def perf_counter(self) -> float:
        return self.now

    def synchronize(self) -> None:
        Device.now += Device.queued
        Device.queued = 0.0

    def first(self, value: float) -> float:
        return value + self.ahead


@given(ACTIONS)
def test_every_second_of_the_device_is_in_the_reading_and_every_reading_is_rank_0s(
    actions: list[tuple[str, int]],
) -> None:
    """Work that is queued before the start is not counted, and what is queued behind it is, once."""
    device = Device()
    Device.now, Device.queued, spent = 0.0, 50.0, 0.0
    with patch.object(clock, "time", types.SimpleNamespace(perf_counter=device.perf_counter)):
        own = TrainClock(device, seconds=7.0)
        own.start()
        assert device.queued == 0.0
        for action, seconds in actions:
            if action == "host":
                Device.now += seconds
                spent += seconds
            elif action == "queue":
                Device.queued += seconds
                spent += seconds
            elif action == "read":
                assert own.agreed_seconds() == 7.0 + spent - device.queued + device.ahead
                assert own.agreed_seconds(exact=True) == 7.0 + spent + device.ahead
            else:
                own.pause()
                assert own.seconds == 7.0 + spent
                # What happens while it stands, such as a validation, is not counted.
                Device.now, Device.queued = Device.now + 5, 30.0
                assert own.seconds == 7.0 + spent
                own.start()
        own.pause()
        assert own.seconds == 7.0 + spent


def test_timers_wait_for_what_they_have_queued() -> None:
    """A launch takes a second of the host, and its work four of the device."""
    device = Device()
    Device.now, Device.queued = 0.0, 0.0

    def launch(*_: object) -> list[Tensor]:
        Device.now += 1
        Device.queued += 4
        return []

    fake_time = types.SimpleNamespace(perf_counter=device.perf_counter)
    cuda = types.SimpleNamespace(is_available=lambda: True, synchronize=device.synchronize)
    with patch.object(trial, "time", fake_time), patch.object(trial, "torch", types.SimpleNamespace(cuda=cuda)):
        assert trial.milliseconds(launch) == 5000.0
    state = types.SimpleNamespace(step=launch, ranks=device, switches=types.SimpleNamespace(on=()))
    with patch.object(pace, "time", fake_time):
        assert pace._step_seconds(compose(["model=9l"]), state, ()) == 5.0  # type: ignore[arg-type]


def test_the_seconds_of_a_score_have_what_was_queued_for_it() -> None:
    device = Device()
    Device.now, Device.queued = 0.0, 0.0
    with patch.object(tally, "time", types.SimpleNamespace(perf_counter=device.perf_counter)):
        score = small_tally(small_tokens(20), Ranks())
        Device.queued, score.scored, score.bytes = 4.0, 10, 10

        def item() -> float:
            device.synchronize()
            return 1.0

        score.nats = types.SimpleNamespace(item=item)  # type: ignore[assignment]
        assert score.score().seconds == 4.0


def slow_compiler(function: Callable[..., Any], **_: Any) -> Callable[..., Any]:
    """Take 100 seconds for each new kind of inputs: other shapes, dtypes or settings, or with gradients or without."""
    known = set[str]()

    def call(*inputs: Any, **options: Any) -> Any:
        kind = [(i.shape, i.dtype, i.stride()) if isinstance(i, Tensor) else i for i in (*inputs, *options.items())]
        if (key := repr((kind, torch.is_grad_enabled(), torch.is_inference_mode_enabled()))) not in known:
            known.add(key)
            Device.now += 100
        return function(*inputs, **options)

    return call


@contextmanager
def compiling_scorer(cfg: Config) -> Iterator[Scorer]:
    """Give the scorer of `cfg` whose functions are compiled by `slow_compiler`, on the clock of `Device`."""
    cfg.launch.compile, cfg.eval.stride = "full", 16
    tokens = small_tokens(400)
    text = Dataset([], [], tokens, np.ones(tokens.size - 1, np.int16), "")
    Device.now, Device.queued = 0.0, 0.0
    fake_time = types.SimpleNamespace(perf_counter=Device().perf_counter)
    with patch.object(tally, "time", fake_time), patch.object(torch, "compile", slow_compiler):
        yield Scorer(cfg, text, Ranks())


@pytest.mark.parametrize("method", ["off", "sgd"])
@pytest.mark.parametrize("documents", [False, True])
def test_what_a_score_needs_is_compiled_before_its_clock_starts(method: str, documents: bool, tiny_cfg: Config) -> None:
    tiny_cfg.eval.ttt.method, tiny_cfg.eval.documents = method, documents
    with compiling_scorer(tiny_cfg) as scorer:
        weights = build_model(tiny_cfg).state_dict()
        score = scorer.sliding(weights) if method == "off" else scorer.test_time_trained(weights)
    assert Device.now >= 100.0 and score.seconds == 0.0


@pytest.mark.parametrize("techniques", ["", "recurrence", "fake_quant,recurrence"])
@pytest.mark.parametrize("documents", [False, True])
def test_the_last_score_compiles_nothing_that_the_last_validation_has(
    techniques: str, documents: bool, tiny: OwnDataset
) -> None:
    loop = ["tech.recurrence.first=0", "tech.recurrence.last=0"] if techniques else []
    cfg = compose([*tiny_overrides(tiny), f"tech=[{techniques}]", *loop, f"eval.documents={str(documents).lower()}"])
    switches = Switches(cfg)
    switches.advance(Progress(1, 1.0, 0.0))
    with compiling_scorer(cfg) as scorer:
        weights = build_model(cfg).state_dict()
        validation = scorer(weights, switches.on_in_scores())
        assert scorer(weights).seconds == 0.0 < validation.seconds
