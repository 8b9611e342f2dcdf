"""Dry runs on a fake CUDA device: `python dry_run.py guard.so case …` prints what each case did, as JSON.

A case is `step:EXPERIMENT`, one of eight ranks in `muon`, `ddp`, `documents`, `loop`, `stages` and `join`, `flat`,
`sliding`, `sgd`, `lora`, `calibration`, `tuning` or `checkpoint`, `record:EXPERIMENT` for a step of the whole model,
`kernels:EXPERIMENT` for a step with the kernels in Triton, `planted:FAULT` for a step with a fault in its MLP, and
`faults` for all of faults.py behind their cases. An exception's sentence is under `error`.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.fake_cuda import load_guard, pretend, put_guard
from tests.fake_cuda.device import Recorder

load_guard(sys.argv[1])

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch._dynamo  # noqa: E402  # before anything is replaced: it lists torch's functions
import torch.distributed as dist  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from golf.artifact.quant.formats import CodedTensor  # noqa: E402
from golf.bits import Score  # noqa: E402
from golf.lab.plan.machines import overrides_on, parse_machine  # noqa: E402
from golf.run.progress import Progress  # noqa: E402
from golf.settings.composition import compose  # noqa: E402
from golf.settings.config import Config  # noqa: E402
from golf.settings.hardware import assumed  # noqa: E402
from golf.training.data.batches import open_loader  # noqa: E402
from golf.training.data.dataset import Dataset  # noqa: E402
from golf.training.loop import warmup  # noqa: E402
from golf.training.loop.calibration import collect  # noqa: E402
from golf.training.loop.checkpoint import flatten  # noqa: E402
from golf.training.loop.clock import TrainClock  # noqa: E402
from golf.training.loop.state import build_state  # noqa: E402
from golf.training.loop.training import train  # noqa: E402
from golf.training.loop.tuning import tune_floats  # noqa: E402
from golf.training.loop.warmup import synthetic_batch  # noqa: E402
from golf.training.model import layers  # noqa: E402
from golf.training.model.build import build_model, build_scored_model  # noqa: E402
from golf.training.model.gpt import GPT  # noqa: E402
from golf.training.model.kernels.choice import LossKernel, MLPKernel  # noqa: E402
from golf.training.ranks import Ranks, join_ranks  # noqa: E402
from golf.training.scoring.scorer import Scorer  # noqa: E402
from golf.training.scoring.ttt_sgd import SGDTrainer  # noqa: E402
from tests.fake_cuda.collectives import RankOf8, Watch, install  # noqa: E402
from tests.fake_cuda.faults import FAULTS, is_noticed  # noqa: E402
from tests.fake_cuda.faults import planted as planted_fault  # noqa: E402
from tests.fake_cuda.host import flags  # noqa: E402

CUDA = torch.device("cuda", 0)
OWN = torch.device("cuda", 3)  # of a rank among eight
LOOP_STEPS = 20
LOOP_WAITS = {"training.py": 10, "ranks.py": 2}  # the first ten losses are logged; the clock starts and ends exactly
RELU_SQUARED = layers.relu_squared
SEQUENCES = 4  # of a micro-batch in the fast suite
SHARED = ("muon", "ddp", "documents", "loop", "stages", "join")  # cases of one rank of eight
DOCUMENTS = ["model.within_documents=true", "eval.documents=true", "data.loader=packed", "model.attention=varlen"]
# A late switch, and stages of two lengths: four kinds of pass.
LATE = [
    "tech=[recurrence]",
    "tech.recurrence.first=1",
    "tech.recurrence.last=1",
    "tech.recurrence.enable_at=0.7",
    "schedule.stages=[{until:0.4,seq_len:512},{}]",
]
SMALL = ["model.num_layers=2", "launch.compile=off", "data=pydocs", "rules.code_bytes=estimate"]


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
    state = build_state(cfg, ranks)
    if flags()["attention by plain operations"]:
        recorder.host.append("attention by plain operations may run: inputs that no fast kernel takes would be slow")
    for kernel in (LossKernel, MLPKernel) if kernels else ():
        assert kernel(state.model).problem(CUDA) == ""
        kernel(state.model).use()
    inputs, targets = (t.pin_memory() for t in synthetic_batch(cfg))
    if recorder.watch:
        # Momentum is that of the matrices which the rank owns.
        recorder.watch.batch(inputs, targets, *state.step.optimizer.muon.state.values())
    with recorder:
        for active in [state.switches.on, *state.switches.later_sets()]:
            state.hooks.begin_step(Progress(1, 0.5, 0.5))
            state.step(lambda: (inputs, targets), 1.0, 0.95, active)
            state.hooks.after_step(Progress(2, 0.5, 0.5))
    if recorder.watch:
        recorder.watch.end(state.model)


class Silent:
    """A log that keeps nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def loop(cfg: Config, ranks: Ranks, recorder: Recorder) -> None:
    """Run the timed loop on text, with the loader of a GPU run."""
    cfg.schedule.iterations, cfg.launch.train_log_every, cfg.eval.val_loss_every = LOOP_STEPS, 0, 0
    text = np.random.default_rng(0).integers(2, 1000, 40 * cfg.data.train_batch_tokens).astype(np.uint16)
    text[::300] = 1
    state = build_state(cfg, ranks)
    score = Score(1.0, 1.0, 1, 1, 1.0)
    warmed, reached = set[str](), set[str]()
    with passes_noted(warmed):
        warmup.run_steps(cfg, state, lambda _: None)
    with open_loader(cfg, Dataset([], [text], text, text, ""), ranks) as loader, passes_noted(reached):
        next_batch = loader.next_batch

        def own_batch() -> tuple[torch.Tensor, torch.Tensor]:
            batch = next_batch()
            recorder.watch.batch(*batch)
            return batch

        loader.next_batch = own_batch  # type: ignore[method-assign]
        with recorder:
            clock = TrainClock(ranks)
            train(cfg, state, loader, lambda last: score, Silent(), clock)  # type: ignore[arg-type]
    for unknown in sorted(reached - warmed):
        recorder.watch.fault(f"the loop reaches what the warm-up does not: {unknown}")
    recorder.watch.end(state.model)


@contextlib.contextmanager
def passes_noted(noted: set[str]) -> Iterator[None]:
    """Note what a compiled graph is made for: shapes, strides and dtypes of a pass, late switches, length of pieces."""
    plain = GPT.forward

    def forward(model: GPT, *inputs: Any) -> torch.Tensor:
        tensors = [(tuple(t.shape), t.stride(), str(t.dtype)) for t in inputs[:2]]
        noted.add(f"{tensors}, {inputs[2:]}, pieces of {getattr(model, 'piece_tokens', None)}, {model.training}")
        return plain(model, *inputs)

    with patch.object(GPT, "forward", forward):
        yield


def scored(cfg: Config, how: str, ranks: Ranks, recorder: Recorder) -> None:
    """Score a few windows of text as `how` says."""
    tokens = np.random.default_rng(0).integers(2, 1000, 6 * cfg.data.train_seq_len + 1).astype(np.uint16)
    tokens[:: cfg.data.train_seq_len // 2] = 1
    dataset = Dataset([], [], tokens, np.ones(tokens.size - 1, np.int16), "")
    scorer = Scorer(cfg, dataset, ranks)
    weights = build_model(cfg).to(ranks.device).state_dict()
    watch, update = recorder.watch, SGDTrainer._update

    def watched_update(trainer: SGDTrainer, *given: Any) -> None:
        update(trainer, *given)
        # Here, because the score ends with the weights that it began with.
        if watch:
            watch.end(scorer.model)

    # A device without numbers has no random numbers.
    generator = torch.Generator()
    with (
        recorder,
        patch.object(torch, "Generator", lambda *_: generator),
        patch.object(SGDTrainer, "_update", watched_update),
    ):
        if how == "flat":
            scorer(weights)
        elif how == "sliding":
            scorer.sliding(weights)
        else:
            scorer.test_time_trained(weights)


def calibrated(cfg: Config, recorder: Recorder) -> None:
    """Collect Hessians from two batches."""
    batch = synthetic_batch(cfg)
    model = build_scored_model(cfg, CUDA)
    weights = build_model(cfg).to(CUDA).state_dict()
    with recorder:
        found = collect(cfg, model, weights, Ranks(device=CUDA), lambda: batch)
    # In bf16 sums over many inputs would stop growing.
    kinds = {str(hessian.dtype) for hessian in found.hessians.values()}
    recorder.host += [f"Hessians are {kind}" for kind in kinds if kind not in ("torch.float32", "torch.float64")]


def checkpointed(cfg: Config, recorder: Recorder) -> None:
    """Copy what a checkpoint holds after a step."""
    state = build_state(cfg, Ranks(device=CUDA))
    batch = synthetic_batch(cfg)
    state.step(lambda: batch, 1.0, 0.95, state.switches.on)
    with recorder:
        flatten({"model": state.model.state_dict(), "optimizer": state.step.optimizer.state_dict()})


def tuned(cfg: Config, recorder: Recorder) -> None:
    """Take two steps of tuning after rounding, on codes as an artifact of int6 with column steps holds them."""
    batch = synthetic_batch(cfg)
    weights = build_model(cfg).to(CUDA).state_dict()
    coded = {}
    for name, w in weights.items():
        coded[name] = CodedTensor(w.cpu(), None, w.dtype)
        if w.ndim == 2:
            codes, columns = torch.zeros(w.shape, dtype=torch.int8), torch.zeros(w.size(1), dtype=torch.int8)
            coded[name] = CodedTensor(codes, torch.ones(w.size(0), dtype=torch.float16), w.dtype, False, columns)
    with recorder:
        done = tune_floats(cfg, coded, weights, Ranks(device=CUDA), lambda: batch)
    assert done.steps == 2


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


def run(case: str, rank: int = 7) -> Recorder:
    """Run one case and return what it recorded; `rank` is this one's among eight."""
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
        "sgd": ["eval=ttt_sgd", "eval.ttt.epochs=1", "eval.ttt.chunk_tokens=2048"],
        "lora": ["eval=ttt_lora_per_use"],  # A is drawn for each batch of documents
        "calibration": ["quant=gptq_int6", "quant.calibration.tokens=8192"],
        "tuning": ["quant=sdclip_gptq", "quant.tune.steps=2"],
        "muon": ["optim=parallel_muon", "optim.grad_clip_norm=0.3", "tech=[ema]"],
        "loop": ["optim=parallel_muon", "model.num_layers=1"],
        "stages": [*DOCUMENTS, "optim=parallel_muon", *LATE, "schedule.warmup_steps=2"],
        "documents": [*DOCUMENTS, "optim=parallel_muon"],
        "ddp": ["optim.grad_clip_norm=0.3"],
    }
    is_shared, os.environ["DRY_RANK"] = kind in (*SHARED, "sgd"), str(rank)
    cfg = configured("8xh100" if is_shared else "1xh100", *chosen, *extra.get(kind, []))
    cfg = cfg if kind == "record" else small(cfg)
    watch = Watch(OWN) if is_shared else None
    if watch:
        install(watch)
    ranks = RankOf8(rank, 8, OWN) if is_shared else Ranks(device=CUDA)
    recorder = Recorder(cfg.data.train_batch_tokens // 8 * min(cfg.model.model_dim, 256), watch)
    if watch and kind == "join":
        joined(watch)
    elif kind in ("loop", "stages"):
        loop(cfg, ranks, recorder)
    elif kind in ("step", "record", "kernels", *SHARED):
        take_steps(cfg, ranks, recorder, kernels=kind == "kernels")
    elif kind == "calibration":
        calibrated(cfg, recorder)
    elif kind == "tuning":
        tuned(cfg, recorder)
    elif kind == "checkpoint":
        checkpointed(cfg, recorder)
    else:
        scored(cfg, kind, ranks, recorder)
    return recorder


def joined(watch: Watch) -> None:
    """Join eight ranks as the one whose GPU is the fourth of its machine."""
    asked: dict[str, Any] = {}
    own = {"RANK": "3", "LOCAL_RANK": "3", "WORLD_SIZE": "8"}
    choose, is_joined = torch.cuda.set_device, dist.is_initialized
    torch.cuda.set_device = lambda device: asked.update(chosen=device)
    dist.is_initialized = lambda: False
    with (
        patch.object(dist, "init_process_group", lambda _, **options: asked.update(options)),
        patch.dict(os.environ, own),
    ):
        ranks = join_ranks("cuda", 8)
    torch.cuda.set_device, dist.is_initialized = choose, is_joined
    # The others wait while the first rank quantizes and packs.
    if asked["timeout"] < datetime.timedelta(minutes=10):
        watch.fault(f"ranks wait for {asked['timeout']} alone")
    for what, device in (("", ranks.device), (" for plain cuda", asked["chosen"]), (" for NCCL", asked["device_id"])):
        if device != OWN:
            watch.fault(f"a rank of GPU 3 took {device}{what}")


def findings(case: str) -> dict[str, Any]:
    """Return what a case did."""
    # The loader's thread knows no mode, and its batches are real.
    with FakeTensorMode(allow_non_fake_inputs=case in ("loop", "stages")):
        recorder = run(case)
        found: dict[str, Any] = {
            "operations": recorder.live_ops,
            "waits": sorted(set(recorder.waits)),
            "pageable": sorted(set(recorder.pageable)),
            "wide": sorted(set(recorder.wide)),
            "host": sorted(set(recorder.host)),
        }
        watch = recorder.watch
        if watch is None:
            return found
        if case == "muon" and run(case, rank=0).watch.order != watch.order:
            watch.fault("the collectives of ranks 0 and 7 differ: their orders differ")
        if case in ("loop", "stages"):
            for file, times in Counter(line.partition(":")[0] for line in recorder.waits).items():
                if times > LOOP_WAITS.get(file, 0):
                    watch.fault(f"{times} waits in {file} in {LOOP_STEPS} steps")
        return {**found, "faults": watch.faults, "collectives": len(watch.order)}


def main() -> None:
    """Print the findings of the cases on the command line."""
    put_guard(sys.argv[1])
    pretend()
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=7, world_size=8)
    found: dict[str, dict[str, Any]] = {}
    wanted = [name for name in sys.argv[2:] if name != "-v"]
    for case in [*wanted, *(f"fault:{name}" for name in FAULTS if "faults" in wanted)]:
        if case == "faults":
            continue
        kind, _, name = case.partition(":")
        try:
            with planted_fault(name) if kind == "fault" else nullcontext(case) as plain:
                found[case] = findings(plain)
        except Exception as error:
            found[case] = {"error": f"{type(error).__name__}: {error}"}
            if "-v" in sys.argv:
                raise
        if kind == "fault":
            found[case]["is_noticed"] = is_noticed(FAULTS[name], found[case], found[FAULTS[name].case])
    print(json.dumps(found))


if __name__ == "__main__":
    main()
