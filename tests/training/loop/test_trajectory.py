"""Twenty-four steps of the public script of 9 April: row-normalised Muon, late recurrence, blocks side by side, EMA."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from golf.registry import technique_types
from golf.run.progress import Progress
from golf.settings.config import Config, ModelConfig, OptimConfig, ScheduleConfig
from golf.training.loop.schedule import muon_momentum
from golf.training.loop.steps import TrainStep
from golf.training.loop.switches import StepHooks, Switches
from golf.training.model.build import build_model
from golf.training.optim.groups import build_optimizer
from golf.training.ranks import Ranks
from tests.support import PARITY, parity

SEQ_LEN, STEPS = 64, 24
HEADER_BYTES = 1024


def published_windows(files: list[Path], seed: int) -> Iterator[np.ndarray]:
    """Yield windows of `SEQ_LEN` + 1 tokens in the order of the public shuffled loader.

    Every shard has a random phase and a permutation of its windows, which are taken from the end. The shard of each
    window is drawn in proportion to the windows that the shards have left.
    """
    random = np.random.Generator(np.random.PCG64(seed))
    shards = [np.fromfile(file, dtype=np.uint16, offset=HEADER_BYTES).astype(np.int64) for file in files]
    starts: list[list[int]] = []
    while True:
        if not any(starts):
            starts = [windows_of(len(tokens), random) for tokens in shards]
        left = np.array([len(of_shard) for of_shard in starts], dtype=np.float64)
        shard = int(random.choice(len(shards), p=left / left.sum()))
        start = int(starts[shard].pop())
        yield shards[shard][start : start + SEQ_LEN + 1]


def windows_of(tokens: int, random: np.random.Generator) -> list[int]:
    """Return the first tokens of a shard's windows in random order, from a random phase on."""
    phase = int(random.integers(min(SEQ_LEN - 1, tokens - SEQ_LEN - 1) + 1))
    return list(phase + random.permutation((tokens - 1 - phase) // SEQ_LEN) * SEQ_LEN)


def shards_of_the_case() -> list[Path]:
    return sorted((PARITY / "tiny_dataset").glob("*train*.bin"))


def batches(seed: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
    windows = published_windows(shards_of_the_case(), seed)
    while True:
        pair = torch.from_numpy(np.stack([next(windows), next(windows)]))
        yield pair[:, :-1], pair[:, 1:]


def configuration() -> Config:
    cfg = Config(
        model=ModelConfig(
            vocab_size=400,
            num_layers=7,
            model_dim=32,
            num_heads=4,
            num_kv_heads=2,
            qk_gain_init=5.25,
            compute_dtype="fp32",
            attention="sdpa",
        ),
        optim=OptimConfig(
            matrix_lr=0.022,
            scalar_lr=0.02,
            tied_embed_lr=0.03,
            muon_momentum=0.99,
            muon_momentum_warmup_start=0.92,
            muon_momentum_warmup_steps=10,
            muon_dtype="fp32",
            muon_wd=0.095,
            adam_wd=0.02,
            embed_wd=0.085,
            grad_clip_norm=0.3,
            muon_row_normalize=True,
        ),
        schedule=ScheduleConfig(iterations=STEPS, warmdown_fraction=0.72),
    )
    cfg.budget.train_seconds, cfg.data.micro_batches = 0.0, 8
    selected: dict[str, dict[str, Any]] = {
        "ema": {"decay": 0.9},
        "leaky_relu": {"slope": 0.5},
        "ln_scale": {},
        "parallel_lanes": {"form": "side_by_side", "first": 4},
        "partial_rope": {"dims": 4, "reference_len": None},
        "recurrence": {"first": 2, "last": 3, "passes": 3, "enable_at": 0.35},
        "skip_gates": {},
        "xsa": {"last_n": None},
    }
    cfg.tech = {name: technique_types()[name](**settings) for name, settings in selected.items()}
    return cfg


def test_windows_are_those_of_the_public_loader() -> None:
    arrays, _ = parity("loaders27")
    windows = published_windows(shards_of_the_case(), seed=0)
    for call in range(3):
        found = np.stack([next(windows) for _ in range(4)])
        assert np.array_equal(found[:, :-1], arrays[f"shuffled/{call}/x"])
        assert np.array_equal(found[:, 1:], arrays[f"shuffled/{call}/y"])


@pytest.mark.slow
@pytest.mark.parametrize("form", ["sharded", "parallel"])
def test_trajectory_of_the_record_of_9_april(form: str) -> None:
    arrays, _ = parity("trajectory09")
    cfg = configuration()
    cfg.optim.muon = form
    model = build_model(cfg)
    model.load_state_dict({k[5:]: torch.from_numpy(v) for k, v in arrays.items() if k.startswith("init/")})
    step, hooks = TrainStep(cfg, model, build_optimizer(cfg, model), Ranks()), StepHooks(cfg, model)
    switches, source = Switches(cfg), batches()
    for i in range(STEPS):
        # Without a clock the script's warm-down follows the share of the run, golf's whole steps: it is given here.
        multiplier, momentum = float(arrays["lr_mul"][i]), muon_momentum(cfg.optim, i)
        assert momentum == pytest.approx(arrays["momentum"][i])
        progress = Progress(i, i / STEPS, multiplier)
        active = switches.advance(progress)
        assert bool(active) == bool(arrays["looping"][i])
        loss = step(source.__next__, multiplier, momentum, active).item()
        hooks.after_step(progress._replace(step=i + 1))
        assert loss == pytest.approx(arrays["train_loss"][i], rel=1e-4), i
    averaged = hooks.final_weights()
    for name, start in ((k[5:], torch.from_numpy(v)) for k, v in arrays.items() if k.startswith("init/")):
        expected = torch.from_numpy(arrays[f"ema/{name}"])
        assert (averaged[name] - expected).norm() <= 1e-3 * (expected - start).norm() + 1e-6, name
