"""Tokens per second of the framework's training step against a plain loop over the same modules.

`python scripts/bench_step.py [overrides]`, for example `model=4l scale=laptop`. The variants take turns, so that a
machine whose speed drifts slows them alike; read the ratios. `--compile` adds compiled variants, `--allocator` runs
everything twice, with glibc's allocator as it is and as golf sets it.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch

from golf.composition import compose
from golf.config import Config, grad_accum_steps
from golf.launch.process import tune_allocator
from golf.loop.steps import TrainStep
from golf.loop.warmup import synthetic_batch
from golf.model.build import build_model
from golf.model.compiling import compile_for_training
from golf.optim.groups import build_optimizer
from golf.ranks import Ranks


def framework_step(cfg: Config, device: torch.device) -> Callable[[], None]:
    """One step as a run takes it."""
    model = build_model(cfg).to(device)
    compile_for_training(model, cfg.launch.compile)
    step = TrainStep(cfg, model, build_optimizer(cfg, model), Ranks(device=device))
    batches = [synthetic_batch(cfg) for _ in range(grad_accum_steps(cfg))]
    return lambda: (step(iter(batches).__next__, 1.0, 0.95), None)[1]


def plain_step(cfg: Config, device: torch.device) -> Callable[[], None]:
    """The same modules in the shortest loop that trains them."""
    model = build_model(cfg).to(device)
    compile_for_training(model, cfg.launch.compile)
    optimizer = build_optimizer(cfg, model)
    batches = [synthetic_batch(cfg) for _ in range(grad_accum_steps(cfg))]

    def step() -> None:
        optimizer.zero_grad()
        for inputs, targets in batches:
            (model(inputs.to(device), targets.to(device)) / len(batches)).backward()
        optimizer.step(1.0, 0.95)

    return step


def measure(steps: dict[str, Callable[[], None]], rounds: int, device: torch.device) -> dict[str, list[float]]:
    """Seconds per step of every variant: one step of each a round, there and back, after two warm-up rounds."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for round_number in range(rounds + 2):
        order = list(steps.items())
        for name, step in order if round_number % 2 else reversed(order):
            start = time.perf_counter()
            step()
            if device.type == "cuda":
                torch.cuda.synchronize()
            if round_number >= 2:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", help="as for golf/train.py")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--dtypes", default="fp32,bf16", help="model.compute_dtype to try (default: fp32,bf16)")
    parser.add_argument("--compile", action="store_true", help="add variants with launch.compile=blocks and full")
    parser.add_argument("--allocator", choices=("golf", "glibc", "both"), default="golf")
    arguments = parser.parse_args()
    if arguments.allocator == "both":
        rest = [a for a in sys.argv[1:] if not a.startswith("--allocator") and a != "both"]
        for allocator in ("glibc", "golf"):
            print(f"allocator: {allocator}", flush=True)
            subprocess.run([sys.executable, __file__, *rest, "--allocator", allocator], check=True)
        return 0
    if arguments.allocator == "golf":
        tune_allocator()
    steps: dict[str, Callable[[], None]] = {}
    for mode in ("off", "blocks", "full") if arguments.compile else ("off",):
        for dtype in arguments.dtypes.split(","):
            cfg = compose([*arguments.overrides, f"launch.compile={mode}", f"model.compute_dtype={dtype}"])
            device = torch.device(cfg.launch.device)
            steps[f"plain      {dtype} compile={mode}"] = plain_step(cfg, device)
            steps[f"framework  {dtype} compile={mode}"] = framework_step(cfg, device)
    seconds = measure(steps, arguments.rounds, device)
    tokens, reference = cfg.data.train_batch_tokens, next(iter(steps))
    print(
        f"{cfg.name} on {device}, {tokens} tokens a step, {torch.get_num_threads()} threads, torch {torch.__version__}"
    )
    print(f"{'variant':32} {'tokens/s':>10} {'ms/step':>9} {'speed against plain':>20}  against {reference}")
    for name, own in seconds.items():
        plain = seconds[name.replace("framework", "plain    ")]
        paired = statistics.median(p / o for p, o in zip(plain, own, strict=True))
        overall = statistics.median(r / o for r, o in zip(seconds[reference], own, strict=True))
        median = statistics.median(own)
        print(f"{name:32} {tokens / median:10,.0f} {1000 * median:9.1f} {paired:20.3f}  {overall:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
