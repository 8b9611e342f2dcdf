"""Measurements of `golf gpu-check`: the device against the CPU, compilation, and step times."""

from __future__ import annotations

import statistics
import time

import torch

from golf.commands.gpu_presets import timed_steps
from golf.errors import GolfError
from golf.settings.composition import compose
from golf.settings.config import Config
from golf.training.loop.state import build_state
from golf.training.loop.warmup import synthetic_batch
from golf.training.model.attention import FLASH_MODULES, cpu_kernels, kernel
from golf.training.model.build import build_model
from golf.training.ranks import Ranks

# Heads of 64 channels: some kernels refuse the 28 of the laptop's preset.
SMALL = ["scale=laptop", "model=4l", "model.model_dim=256", "model.attention=sdpa", "launch.compile=off"]
KERNEL_BOUND = 2e-2  # relative distance of bf16 attention from float64


def check_numbers(device: torch.device) -> list[tuple[str, bool, str]]:
    """Compare loss and gradients on `device` with those of the CPU in float32; return a row for each dtype."""
    # TF32 keeps ten bits of a product's factors, too few for the bound of float32.
    torch.backends.cuda.matmul.allow_tf32 = False
    reference = _loss_and_gradients(compose([*SMALL, "model.compute_dtype=fp32"]), torch.device("cpu"))
    rows = []
    for dtype, bound in (("fp32", 1e-4), ("bf16", 5e-2)):
        loss, gradients = _loss_and_gradients(compose([*SMALL, f"model.compute_dtype={dtype}"]), device)
        distance = float((gradients - reference[1]).norm() / reference[1].norm())
        close = abs(loss - reference[0]) / reference[0] < bound and distance < bound
        rows.append((f"{dtype} equals the CPU", close, f"loss {loss:.6f}, gradients differ by {distance:.1e}"))
    torch.backends.cuda.matmul.allow_tf32 = True
    return rows


def check_kernels(device: torch.device) -> list[tuple[str, bool, str]]:
    """Compare every attention kernel that can be imported with attention in float64; return a row for each."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 128, heads, 64, generator=generator, dtype=torch.float64) for heads in (4, 2, 2))
    with cpu_kernels():
        exact = kernel("sdpa")(q, k, v)
    rows = []
    for backend in ("sdpa", *(FLASH_MODULES if device.type == "cuda" else ())):
        try:
            found = kernel(backend)(*(t.to(device, torch.bfloat16) for t in (q, k, v))).double().cpu()
        except (GolfError, RuntimeError) as error:
            reason = str(error).partition("\n")[0]
            rows.append((f"attention={backend}", True, f"cannot be used: {reason}"))
            continue
        distance = float((found - exact).norm() / exact.norm())
        rows.append((f"attention={backend} equals float64", distance < KERNEL_BOUND, f"differs by {distance:.1e}"))
    return rows


def check_compiling(overrides: list[str], device: torch.device) -> list[tuple[str, bool, str]]:
    """Compile the model to one graph and take a second step, which must not compile again; return a row."""
    cfg = compose([*overrides, "launch.compile=full"])
    step = build_state(cfg, Ranks(device=device), lambda name, progress: None).step
    start = time.perf_counter()
    step(lambda: synthetic_batch(cfg), 1.0, 0.9)
    seconds = time.perf_counter() - start
    try:
        with torch.compiler.set_stance("fail_on_recompile"):
            # A schedule changes learning rate and momentum in every step.
            step(lambda: synthetic_batch(cfg), 0.5, 0.95)
    except RuntimeError as error:
        return [("compiles once", False, str(error).partition("\n")[0])]
    return [("compiles once, fullgraph", True, f"first step {seconds:.1f} s")]


def step_table(overrides: list[str], device: torch.device, steps: int) -> list[str]:
    """Return the Markdown table of step times, eager and compiled."""
    lines = ["| step | median ms | fastest | slowest | tokens/s |", "|---|---|---|---|---|"]
    for mode in ("off", "full"):
        cfg = compose([*overrides, f"launch.compile={mode}"])
        _, times, _ = timed_steps(cfg, device, steps)
        median = statistics.median(times)
        rate = 1000 * cfg.data.train_batch_tokens / median
        lines.append(f"| compile={mode} | {median:.1f} | {min(times):.1f} | {max(times):.1f} | {rate:,.0f} |")
    return lines


def _loss_and_gradients(cfg: Config, device: torch.device) -> tuple[float, torch.Tensor]:
    """Return the loss of one synthetic batch on perturbed starting weights, and all gradients as a CPU vector."""
    torch.manual_seed(0)
    model = build_model(cfg)
    with torch.no_grad():
        for p in model.parameters():
            # Zero-initialised projections would leave most gradients at zero.
            p.add_(0.05 * torch.randn_like(p))
    inputs, targets = synthetic_batch(cfg)
    model.to(device)
    loss = model(inputs.to(device), targets.to(device))
    loss.backward()
    gradients = torch.cat([p.grad.float().flatten().cpu() for p in model.parameters() if p.grad is not None])
    return loss.item(), gradients
