"""Part `numbers` of `golf gpu-check`: the device against the CPU, and two ranks."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import torch

from golf.commands.gpu_part import Answer, Order, Task
from golf.commands.gpu_ranks import LIBRARIES, check_two_ranks
from golf.settings.composition import compose
from golf.settings.config import Config
from golf.training.loop.warmup import synthetic_batch
from golf.training.model.build import build_model

# Heads of 64 channels: some kernels refuse the 28 of the laptop's preset.
SMALL = ["scale=laptop", "model=4l", "model.model_dim=256", "model.attention=sdpa", "launch.compile=off"]
BOUNDS = {"fp32": 1e-4, "bf16": 5e-2}  # dtype → largest relative distance of loss and gradients


def tasks(order: Order) -> Iterator[Task]:
    """Yield the rows of the part."""
    device = torch.device(order.device)
    for dtype in BOUNDS:
        yield f"{dtype} equals the CPU", functools.partial(equals_cpu, dtype, device)
    yield f"two ranks sum alike ({LIBRARIES[device.type]})", lambda: check_two_ranks(device)


def equals_cpu(dtype: str, device: torch.device) -> Answer:
    """Compare loss and gradients on `device` with those of the CPU in float32."""
    # TF32 keeps ten bits of a product's factors, too few for the bound of float32.
    torch.backends.cuda.matmul.allow_tf32 = False
    exact, expected = _loss_and_gradients(compose([*SMALL, "model.compute_dtype=fp32"]), torch.device("cpu"))
    loss, gradients = _loss_and_gradients(compose([*SMALL, f"model.compute_dtype={dtype}"]), device)
    torch.backends.cuda.matmul.allow_tf32 = True
    distance = float((gradients - expected).norm() / expected.norm())
    close = abs(loss - exact) / exact < BOUNDS[dtype] and distance < BOUNDS[dtype]
    return close, f"loss {loss:.6f}, gradients differ by {distance:.1e}"


def _loss_and_gradients(cfg: Config, device: torch.device) -> tuple[float, torch.Tensor]:
    """Return the loss of one synthetic batch on perturbed starting weights, and all gradients as a CPU vector."""
    torch.manual_seed(0)
    model = build_model(cfg)
    with torch.no_grad():
        for p in model.parameters():
            # Zero-initialised projections would leave most gradients at zero. In float32, because torch 2.11 draws
            # other numbers in bf16.
            p.add_(0.05 * torch.randn(p.shape))
    inputs, targets = synthetic_batch(cfg)
    model.to(device)
    loss = model(inputs.to(device), targets.to(device))
    loss.backward()
    gradients = torch.cat([p.grad.float().flatten().cpu() for p in model.parameters() if p.grad is not None])
    return loss.item(), gradients
