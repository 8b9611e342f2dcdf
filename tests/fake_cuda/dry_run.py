"""Dry runs on a fake CUDA device: `python dry_run.py guard.so case …` prints what each case did, as JSON.

A case is `step:EXPERIMENT`, `muon`, `flat`, `sliding`, `sgd`, `lora` or `calibration`, `record:EXPERIMENT` for a step
of the whole model, `kernels:EXPERIMENT` for a step with the kernels in Triton, and `planted:FAULT` for a step with a
fault. An exception's sentence is under `error`.
"""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.fake_cuda.device import Recorder, load_guard, pretend, put_guard

load_guard(sys.argv[1])

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch._dynamo  # noqa: E402  # before anything is replaced: it lists torch's functions
import torch.distributed as dist  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from golf.plan.machines import overrides_on, parse_machine  # noqa: E402
from golf.run.progress import Progress  # noqa: E402
from golf.settings.composition import compose  # noqa: E402
from golf.settings.config import Config  # noqa: E402
from golf.settings.hardware import assumed  # noqa: E402
from golf.training.data.dataset import Dataset  # noqa: E402
from golf.training.loop.calibration import collect  # noqa: E402
from golf.training.loop.state import build_state  # noqa: E402
from golf.training.loop.warmup import synthetic_batch  # noqa: E402
from golf.training.model import layers  # noqa: E402
from golf.training.model.build import build_model  # noqa: E402
from golf.training.model.kernels.choice import LossKernel, MLPKernel  # noqa: E402
from golf.training.ranks import Ranks  # noqa: E402
from golf.training.scoring.scorer import Scorer  # noqa: E402

CUDA = torch.device("cuda", 0)
RELU_SQUARED = layers.relu_squared
SEQUENCES = 4  # of a micro-batch in the fast suite
SMALL = ["model.num_layers=2", "launch.compile=off", "data=pydocs", "rules.code_bytes=estimate"]


class RankOf8(Ranks):
    """The last of eight ranks, whose reductions go nowhere."""

    def sum(self, *values: float) -> list[float]:
        return list(values)


def configured(machine: str, *overrides: str) -> Config:
    parsed = parse_machine(machine)
    with assumed(parsed.hardware()):
        return compose(overrides_on(parsed, ["model.attention=sdpa", "launch.compile=off", *overrides]))


def small(cfg: Config) -> Config:
    """Shorten the batches of `cfg`; widths and dtypes stay."""
    cfg.data.micro_batches = 8
    cfg.data.train_batch_tokens = 8 * SEQUENCES * cfg.data.train_seq_len
    cfg.eval.val_batch_tokens = cfg.data.train_batch_tokens
    return cfg


def take_steps(cfg: Config, ranks: Ranks, recorder: Recorder, kernels: bool = False) -> None:
    """Take a step under every set of late switches, with the hooks of techniques around it."""
    state = build_state(cfg, ranks, lambda *_: None)
    for kernel in (LossKernel, MLPKernel) if kernels else ():
        assert kernel(state.model).problem(CUDA) == ""
        kernel(state.model).use()
    inputs, targets = (t.pin_memory() for t in synthetic_batch(cfg))
    with recorder:
        for active in state.switches.reachable():
            state.hooks.before_step(Progress(1, 0.5, 0.5))
            state.step(lambda: (inputs, targets), 1.0, 0.95, active)
            state.hooks.after_step(Progress(2, 0.5, 0.5))


def scored(cfg: Config, how: str, recorder: Recorder) -> None:
    """Score a few windows of text as `how` says."""
    tokens = np.random.default_rng(0).integers(2, 1000, 6 * cfg.data.train_seq_len + 1).astype(np.uint16)
    tokens[:: cfg.data.train_seq_len // 2] = 1
    dataset = Dataset([], [], tokens, np.ones(tokens.size - 1, np.int16), "")
    scorer = Scorer(cfg, dataset, Ranks(device=CUDA))
    weights = build_model(cfg).to(CUDA).state_dict()
    with recorder:
        if how == "flat":
            scorer(weights)
        elif how == "sliding":
            scorer.sliding(weights)
        else:
            scorer.test_time_trained(weights)


def calibrated(cfg: Config, recorder: Recorder) -> None:
    """Collect Hessians from two batches."""
    batch = synthetic_batch(cfg)
    weights = build_model(cfg).to(CUDA).state_dict()
    with recorder:
        collect(cfg, weights, Ranks(device=CUDA), lambda: batch)


def planted(fault: str, x: torch.Tensor) -> torch.Tensor:
    """Return x² by way of a fault that a step on a GPU must not have."""
    if fault == "wait":
        return x * x * float(x[0, 0, 0].item() >= 0)
    if fault == "pageable":
        return x * x * torch.ones(1, dtype=x.dtype).to(x.device, non_blocking=True)
    if fault == "wide":
        return x.float().relu().square().to(x.dtype)
    if fault == "device":
        return x * torch.ones(x.size(-1), dtype=x.dtype)
    return torch.nn.functional.linear(x, torch.eye(x.size(-1), device=x.device)).square()  # dtype


def run(case: str) -> Recorder:
    """Run one case and return what it recorded."""
    kind, _, experiment = case.partition(":")
    if kind == "planted":
        layers.relu_squared = functools.partial(planted, experiment)
        kind, experiment = "step", ""
    else:
        layers.relu_squared = RELU_SQUARED
    chosen = [f"experiment={experiment}"] if experiment else ["model=9l"]
    if kind != "record":
        chosen += SMALL
    extra = {
        "sliding": ["eval=sliding64"],
        "sgd": ["eval=ttt_sgd", "eval.ttt.epochs=1"],
        "lora": ["eval=ttt_lora_per_use"],  # A is drawn for each batch of documents
        "calibration": ["quant=gptq_int6", "quant.calibration.tokens=8192"],
        "muon": ["optim=parallel_muon"],
    }
    cfg = configured("8xh100" if kind == "muon" else "1xh100", *chosen, *extra.get(kind, []))
    cfg = cfg if kind == "record" else small(cfg)
    recorder = Recorder(cfg.data.train_batch_tokens // 8 * min(cfg.model.model_dim, 256))
    if kind in ("step", "record", "muon", "kernels"):
        ranks = RankOf8(7, 8, CUDA) if kind == "muon" else Ranks(device=CUDA)
        take_steps(cfg, ranks, recorder, kernels=kind == "kernels")
    elif kind == "calibration":
        calibrated(cfg, recorder)
    else:
        scored(cfg, kind, recorder)
    return recorder


def main() -> None:
    """Print the findings of the cases on the command line."""
    put_guard(sys.argv[1])
    pretend()
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=7, world_size=8)
    found = {}
    for case in [name for name in sys.argv[2:] if name != "-v"]:
        try:
            with FakeTensorMode():
                recorder = run(case)
            found[case] = {
                "operations": recorder.live_ops,
                "waits": sorted(set(recorder.waits)),
                "pageable": sorted(set(recorder.pageable)),
                "wide": sorted(set(recorder.wide)),
            }
        except Exception as error:
            found[case] = {"error": f"{type(error).__name__}: {error}"}
            if "-v" in sys.argv:
                raise
    print(json.dumps(found))


if __name__ == "__main__":
    main()
