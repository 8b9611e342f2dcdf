"""Measurements of `golf gpu-check`: the device against the CPU, compilation, and step times."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

import torch

from golf.commands.gpu_check_command import one_line
from golf.commands.gpu_presets import timed_steps
from golf.settings.composition import compose
from golf.settings.config import Config, ModelConfig
from golf.training.data.documents import BOS_ID
from golf.training.loop.state import build_state
from golf.training.loop.warmup import synthetic_batch
from golf.training.model.attention import FLASH_MODULES, cpu_kernels, kernel
from golf.training.model.build import build_model
from golf.training.model.documents import PieceAttention
from golf.training.ranks import Ranks

# Heads of 64 channels: some kernels refuse the 28 of the laptop's preset.
SMALL = ["scale=laptop", "model=4l", "model.model_dim=256", "model.attention=sdpa", "launch.compile=off"]
KERNEL_BOUND = 2e-2  # relative distance of bf16 attention from float64


def check_numbers(device: torch.device) -> Iterator[tuple[str, bool, str]]:
    """Compare loss and gradients on `device` with those of the CPU in float32; yield a row for each dtype."""
    # TF32 keeps ten bits of a product's factors, too few for the bound of float32.
    torch.backends.cuda.matmul.allow_tf32 = False
    reference = _loss_and_gradients(compose([*SMALL, "model.compute_dtype=fp32"]), torch.device("cpu"))
    for dtype, bound in (("fp32", 1e-4), ("bf16", 5e-2)):
        loss, gradients = _loss_and_gradients(compose([*SMALL, f"model.compute_dtype={dtype}"]), device)
        distance = float((gradients - reference[1]).norm() / reference[1].norm())
        close = abs(loss - reference[0]) / reference[0] < bound and distance < bound
        yield f"{dtype} equals the CPU", close, f"loss {loss:.6f}, gradients differ by {distance:.1e}"
    torch.backends.cuda.matmul.allow_tf32 = True


def check_kernels(device: torch.device) -> Iterator[tuple[str, bool, str]]:
    """Compare every attention kernel that can be imported with float64, over rows and within documents; yield rows."""
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(2, 128, heads, 64, generator=generator, dtype=torch.float64) for heads in (4, 2, 2)]
    with cpu_kernels():
        exact = {"": kernel(ModelConfig(attention="sdpa"))(*inputs), " by document": _by_document("sdpa", inputs)}
    for backend in ("sdpa", *(("varlen", *FLASH_MODULES) if device.type == "cuda" else ())):
        for how, expected in exact.items():
            what, half = f"attention={backend}{how}", [t.to(device, torch.bfloat16) for t in inputs]
            try:
                found = _by_document(backend, half) if how else kernel(ModelConfig(attention=backend))(*half)
                found = found.double().cpu()
            # Libraries refuse a device or a shape by any error. Torch's own kernel has to run.
            except Exception as error:
                yield what, backend in FLASH_MODULES, f"cannot be used: {one_line(error)}"
                continue
            distance = float((found - expected).norm() / expected.norm())
            yield f"{what} equals float64", distance < KERNEL_BOUND, f"differs by {distance:.1e}"


def _by_document(backend: str, inputs: list[torch.Tensor]) -> torch.Tensor:
    """Return attention that stops at the end of documents of unequal lengths, two in each row."""
    attend = PieceAttention(ModelConfig(attention=backend))
    ids = torch.zeros(inputs[0].shape[:2], dtype=torch.int64, device=inputs[0].device)
    ids[:, 50] = BOS_ID
    q, k, v = inputs
    return attend(q, k, v, attend.pieces(ids, 64), 64)


def check_compiling(overrides: list[str], device: torch.device) -> list[tuple[str, bool, str]]:
    """Compile the model to one graph and take a second step, which must not compile again; return a row."""
    cfg = compose([*overrides, "launch.compile=full"])
    step = build_state(cfg, Ranks(device=device)).step
    start = time.perf_counter()
    step(lambda: synthetic_batch(cfg), 1.0, 0.9)
    seconds = time.perf_counter() - start
    try:
        with torch.compiler.set_stance("fail_on_recompile"):
            # A schedule changes learning rate and momentum in every step.
            step(lambda: synthetic_batch(cfg), 0.5, 0.95)
    except RuntimeError as error:
        return [("compiles once", False, one_line(error))]
    return [("compiles once, fullgraph", True, f"first step {seconds:.1f} s")]


def step_row(overrides: list[str], device: torch.device, steps: int, mode: str) -> str:
    """Return the row of step times under a compile mode, in Markdown."""
    cfg = compose([*overrides, f"launch.compile={mode}"])
    _, times, _ = timed_steps(cfg, device, steps)
    median = statistics.median(times)
    rate = 1000 * cfg.data.train_batch_tokens / median
    return f"| compile={mode} | {median:.1f} | {min(times):.1f} | {max(times):.1f} | {rate:,.0f} |"


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
