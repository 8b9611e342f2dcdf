"""Quantize a small model on the device with numbers: `python device_quantize.py guard.so [preset …]` prints JSON.

For each preset of conf/quant it says what is wrong: an error, a result that stays on the device, one that differs from
the CPU's, or arithmetic in a precision that the CPU does not use: it can leave the codes of small matrices as they are.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.fake_cuda import load_guard, put_guard

load_guard(sys.argv[1])

import torch  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_flatten  # noqa: E402

from golf.artifact.quant.formats import CodedTensor  # noqa: E402
from golf.artifact.quant.hessians import rounded_by_gptq  # noqa: E402
from golf.artifact.quant.policy import quantize  # noqa: E402
from golf.paths import ROOT  # noqa: E402
from golf.settings.composition import compose  # noqa: E402
from golf.settings.config import Config  # noqa: E402
from golf.training.model.build import build_model  # noqa: E402
from tests.fake_cuda.with_numbers import MOVES, OnDevice, device_with_numbers  # noqa: E402

SMALL = ["model=9l", "model.num_layers=2", "model.model_dim=64", "model.num_heads=2", "model.num_kv_heads=1"]


class Precisions(TorchDispatchMode):
    """Collects `(operation, dtype)` of all results that are floats."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = set[tuple[str, torch.dtype]]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for t in tree_flatten(result)[0]:
            # A copy that keeps the dtype only moves.
            if (
                isinstance(t, Tensor)
                and t.is_floating_point()
                and (func.name() not in MOVES or t.dtype != args[0].dtype)
            ):
                self.seen.add((func.name(), t.dtype))
        return result


def drawn(cfg: Config) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return weights and the Hessians of correlated inputs."""
    torch.manual_seed(0)
    weights = {
        name: 0.3 * torch.randn_like(t) if t.ndim == 2 else t for name, t in build_model(cfg).state_dict().items()
    }
    hessians = {}
    for name in sorted(rounded_by_gptq(weights, cfg.quant)):
        x = torch.randn(200, weights[name].size(1)) @ torch.randn(weights[name].size(1), weights[name].size(1))
        hessians[name] = x.T @ x
    return weights, hessians


def tensors_of(coded: CodedTensor) -> dict[str, Tensor]:
    return {name: value for name, value in vars(coded).items() if isinstance(value, Tensor)}


def problem(preset: str) -> str:
    """Return what is wrong with a preset on the device; empty if nothing is."""
    cfg = compose([*SMALL, f"quant={preset}", "rules.code_bytes=estimate"])
    weights, hessians = drawn(cfg)
    with Precisions() as on_cpu:
        expected = quantize(weights, cfg.quant, hessians or None, cfg.tech)
    for are_there in (False, True):
        # A run has its weights on the CPU and its Hessians on the device; `golf.quantize` takes both anywhere.
        with device_with_numbers():
            statistics = {name: t.to("cuda") for name, t in hessians.items()} or None
            own = {name: t.to("cuda") for name, t in weights.items()} if are_there else weights
            with Precisions() as on_device:
                found = quantize(own, cfg.quant, statistics, cfg.tech)
        if said := difference(found, expected) or other_arithmetic(on_device, on_cpu):
            return f"{said}, with weights on {'the device' if are_there else 'the CPU'}"
    return ""


def difference(found: dict[str, CodedTensor], expected: dict[str, CodedTensor]) -> str:
    """Return what differs from the CPU's result; empty if nothing does."""
    if list(found) != list(expected):
        return f"other tensors: {sorted({*found} ^ {*expected})}"
    for name, coded in found.items():
        for part, value in tensors_of(coded).items():
            if isinstance(value, OnDevice):
                return f"{part} of {name} stays on the device"
            if not torch.equal(value, tensors_of(expected[name])[part]):
                return f"{part} of {name} differs"
    return ""


def other_arithmetic(on_device: Precisions, on_cpu: Precisions) -> str:
    """Return what the device computes in a lower precision than the CPU does; empty if nothing.

    In float64 the CPU has kernels of its own, so that operations differ there.
    """
    others = sorted(on_device.seen - on_cpu.seen, key=str)
    return ", ".join(f"{name} in {dtype}" for name, dtype in others if dtype != torch.float64)


def main() -> None:
    """Print what is wrong with each preset."""
    put_guard(sys.argv[1])
    torch.cuda._lazy_init = lambda: None
    found: dict[str, str] = {}
    for preset in sys.argv[2:] or sorted(path.stem for path in (ROOT / "conf/quant").glob("*.yaml")):
        try:
            found[preset] = problem(preset)
        except Exception as error:
            if "-v" in sys.argv:
                raise
            found[preset] = f"{type(error).__name__}: {error}"
    print(json.dumps(found))


if __name__ == "__main__":
    main()
