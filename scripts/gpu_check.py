"""Everything worth knowing about a new GPU machine, in one call: `python scripts/gpu_check.py --report gpu.md`.

Checks that the GPU computes what the CPU does and that the model compiles to one graph without compiling again,
measures the step time of `naive_baseline`, eager and compiled, and runs the main job for `--train-seconds`. The exit
status is 1 if a check fails. `--device cpu` with small overrides tries the script itself.
"""

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch

from golf.paths import ROOT
from golf.settings.composition import compose
from golf.settings.config import Config
from golf.training.loop.steps import TrainStep
from golf.training.loop.warmup import synthetic_batch
from golf.training.model.attention import choose_kernel
from golf.training.model.build import build_model, compile_for_training
from golf.training.optim.groups import build_optimizer
from golf.training.ranks import Ranks

SMALL = ["scale=laptop", "model=4l", "launch.compile=off"]


def loss_and_gradients(cfg: Config, device: torch.device) -> tuple[float, torch.Tensor]:
    """Loss of one synthetic batch on perturbed starting weights, and all gradients as one vector on the CPU."""
    torch.manual_seed(0)
    model = build_model(cfg)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.05 * torch.randn_like(p))
    inputs, targets = synthetic_batch(cfg)
    model.to(device)
    loss = model(inputs.to(device), targets.to(device))
    loss.backward()
    gradients = torch.cat([p.grad.float().flatten().cpu() for p in model.parameters() if p.grad is not None])
    return loss.item(), gradients


def check_numbers(device: torch.device) -> list[tuple[str, bool, str]]:
    """The device against the CPU in float32."""
    torch.backends.cuda.matmul.allow_tf32 = False
    reference = loss_and_gradients(compose([*SMALL, "model.compute_dtype=fp32"]), torch.device("cpu"))
    rows = []
    for dtype, bound in (("fp32", 1e-4), ("bf16", 5e-2)):
        loss, gradients = loss_and_gradients(compose([*SMALL, f"model.compute_dtype={dtype}"]), device)
        distance = float((gradients - reference[1]).norm() / reference[1].norm())
        close = abs(loss - reference[0]) / reference[0] < bound and distance < bound
        rows.append((f"{dtype} equals the CPU", close, f"loss {loss:.6f}, gradients differ by {distance:.1e}"))
    torch.backends.cuda.matmul.allow_tf32 = True
    return rows


def check_compiling(overrides: list[str], device: torch.device) -> list[tuple[str, bool, str]]:
    """One graph (fullgraph), and none after the first step."""
    cfg = compose([*overrides, "launch.compile=full"])
    step, start = prepared_step(cfg, device), time.perf_counter()
    step(lambda: synthetic_batch(cfg), 1.0, 0.9)
    seconds = time.perf_counter() - start
    try:
        with torch.compiler.set_stance("fail_on_recompile"):
            step(lambda: synthetic_batch(cfg), 0.5, 0.95)
    except RuntimeError as error:
        return [("compiles once", False, str(error).partition("\n")[0])]
    return [("compiles once, fullgraph", True, f"first step {seconds:.1f} s")]


def prepared_step(cfg: Config, device: torch.device) -> TrainStep:
    model = build_model(cfg).to(device)
    choose_kernel(device, cfg)
    compile_for_training(model, cfg.launch.compile)
    return TrainStep(cfg, model, build_optimizer(cfg, model), Ranks(device=device))


def step_milliseconds(cfg: Config, device: torch.device, steps: int) -> tuple[float, float, float]:
    """Median, fastest and slowest step on synthetic tokens after three warm-up steps."""
    step, times = prepared_step(cfg, device), []
    for i in range(steps + 3):
        if device.type == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        step(lambda: synthetic_batch(cfg), 1.0, 0.95)
        if device.type == "cuda":
            torch.cuda.synchronize()
        if i >= 3:
            times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times), min(times), max(times)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", help="for the step times and the main job")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--train-seconds", type=float, default=600.0, help="0 leaves the main job out")
    parser.add_argument("--report", type=Path, help="write the Markdown here, too")
    a = parser.parse_args()
    if a.device == "cuda" and not torch.cuda.is_available():
        print("error: no CUDA device is visible; --device cpu tries the script without one.", file=sys.stderr)
        return 2
    device = torch.device(a.device)
    name = torch.cuda.get_device_name(0) if a.device == "cuda" else "CPU"
    overrides = [*(a.overrides or ["experiment=naive_baseline", "scale=single_gpu"]), f"launch.device={a.device}"]
    lines = [
        f"## {name}, torch {torch.__version__}",
        "",
        f"`{' '.join(overrides)}`",
        "",
        "| check | | |",
        "|---|---|---|",
    ]
    checks = check_numbers(device) + check_compiling(overrides, device)
    lines += [f"| {what} | {'yes' if ok else 'NO'} | {detail} |" for what, ok, detail in checks]
    lines += ["", "| step | median ms | fastest | slowest | tokens/s |", "|---|---|---|---|---|"]
    for mode in ("off", "full"):
        cfg = compose([*overrides, f"launch.compile={mode}"])
        median, low, high = step_milliseconds(cfg, device, a.steps)
        rate = 1000 * cfg.data.train_batch_tokens / median
        lines.append(f"| compile={mode} | {median:.1f} | {low:.1f} | {high:.1f} | {rate:,.0f} |")
    print("\n".join(lines), flush=True)
    status = 0
    if a.train_seconds:
        command = [sys.executable, "golf/train.py", *overrides, f"budget.train_seconds={a.train_seconds:g}"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        job = ["", f"`{' '.join(command[1:])}` ended with status {done.returncode}:", "", "```", done.stdout, "```"]
        print("\n".join([*job, done.stderr]))
        lines, status = lines + job, done.returncode
    if a.report:
        a.report.write_text("\n".join(lines) + "\n")
    return status if all(ok for _, ok, _ in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
