"""The choice of kernels for training: those in Triton where a trial on this GPU finds them equal to torch's and faster.

Scores, calibration and the proofs of a run always use torch's operations.
"""

from __future__ import annotations

import importlib
import linecache
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType, ModuleType

import torch
import torch.nn.functional as F
from torch import Tensor

from golf.settings.config import Config, micro_batch_tokens
from golf.training.model.eager_cpu import LARGEST_CAP
from golf.training.model.gpt import GPT, capped_losses, caps_apart
from golf.training.model.kernels.trial import Outcome, Rivals, seeded, trial
from golf.training.model.layers import MLP, expand_and_contract, relu_squared
from golf.training.ranks import Ranks

TMA_MULTIPLE = 8  # numbers in bf16 that a row read by tensor descriptors has to be a multiple of
TIE = 1.03  # times torch's time that a kernel may take
HOPPER = 9  # compute capability that the tiles of the MLP are made for
# Module → text, filled by the export. Triton reads the source of its functions, which a script that was unpacked in
# memory cannot show otherwise.
KERNEL_TEXTS: dict[str, str] = {}


def kernel_module(name: str) -> ModuleType:
    """Import `name` of this folder. Raises what the import raises where Triton is missing or of another version."""
    if name not in KERNEL_TEXTS:
        return importlib.import_module(f"golf.training.model.kernels.{name}")
    if name not in sys.modules:
        text, module = KERNEL_TEXTS[name], ModuleType(name)
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        # As a function, because a minifier renames no global beside the name `exec`.
        FunctionType(compile(text, name, "exec"), module.__dict__)()
        # Here at last, so that a failed import is tried anew and fails with the same reason.
        sys.modules[name] = module
    return sys.modules[name]


@dataclass(frozen=True)
class LossKernel:
    """The softcapped cross-entropy, which reads the logits once in either direction."""

    model: GPT
    setting: str = "loss_kernel"  # of `launch`

    def problem(self, device: torch.device) -> str:
        """Return why the kernel cannot compute the model on a CUDA device; empty if it can."""
        if caps_apart(self.model):
            return "a technique changes the logits or their cap"
        return f"it is for caps up to {LARGEST_CAP:g}" if self.model.cfg.logit_softcap > LARGEST_CAP else ""

    def rivals(self, rows: int, device: torch.device) -> Rivals:
        """Return the kernel and torch's operations, on inputs for `rows` tokens."""
        vocabulary, cap = self.model.cfg.vocab_size, self.model.cfg.logit_softcap
        generator = seeded(device)
        logits = 5 * torch.randn(rows, vocabulary, device=device, generator=generator)
        targets = torch.randint(vocabulary, (rows,), device=device, generator=generator)
        losses = kernel_module("triton_loss").fused_losses
        return Rivals(
            lambda logits, targets: losses(logits, targets, cap),
            lambda logits, targets: capped_losses(logits, targets, cap),
            [logits.to(self.model.tok_emb.weight.dtype), targets],
        )

    def use(self) -> None:
        """Put the kernel into the model."""
        self.model.losses = kernel_module("triton_loss").fused_losses


@dataclass(frozen=True)
class FusedMLP:
    """The slot `compute` of an `MLP` whose activation is (leaky x)², with `slope` below zero."""

    kernel: Callable[[Tensor, Tensor, Tensor, float], Tensor]
    slope: float

    def __call__(self, mlp: MLP, x: Tensor, active: tuple[str, ...]) -> Tensor:
        up, down = mlp.fc.edited_weight(active), mlp.proj.edited_weight(active)
        return self.kernel(x, up.to(x.dtype), down.to(x.dtype), self.slope)


@dataclass(frozen=True)
class MLPKernel:
    """The MLP, whose activation and derivative are computed where the products are made."""

    model: GPT
    setting: str = "mlp_kernel"

    def problem(self, device: torch.device) -> str:
        if self.model.tok_emb.weight.dtype != torch.bfloat16:
            return "it is for model.compute_dtype=bf16"
        mlps = self._mlps()
        if any(mlp.compute is not expand_and_contract for mlp in mlps):
            return "a technique computes the MLPs in its own way"
        if len(mlps) < len(self.model.blocks) or any(_slope(mlp) is None for mlp in mlps):
            return "it is for ReLU² and LeakyReLU²"
        if any(size % TMA_MULTIPLE for size in mlps[0].fc.weight.shape):
            return f"it is for widths that are multiples of {TMA_MULTIPLE}"
        return "" if torch.cuda.get_device_capability(device)[0] == HOPPER else "it is for Hopper GPUs"

    def rivals(self, rows: int, device: torch.device) -> Rivals:
        first = self._mlps()[0]
        activation, slope = first.activation, _slope(first)
        hidden, width = first.fc.weight.shape
        generator = seeded(device)
        shapes = (rows, width), (hidden, width), (width, hidden)
        x, up, down = (torch.randn(*shape, device=device, generator=generator) for shape in shapes)
        # Matrices of this size keep the size of what they map.
        inputs = [t.to(torch.bfloat16) for t in (x, up * width**-0.5, down * hidden**-0.5)]
        mlp = kernel_module("triton_mlp").fused_mlp
        return Rivals(
            lambda x, up, down: mlp(x, up, down, slope),
            lambda x, up, down: F.linear(activation(F.linear(x, up)), down),
            inputs,
        )

    def use(self) -> None:
        kernel = kernel_module("triton_mlp").fused_mlp
        for mlp in self._mlps():
            slope = _slope(mlp)
            assert slope is not None
            mlp.compute = FusedMLP(kernel, slope)

    def _mlps(self) -> list[MLP]:
        """Return the MLPs of the blocks, without those of another kind."""
        return [part for block in self.model.blocks for part in block.modules() if isinstance(part, MLP)]


def _slope(mlp: MLP) -> float | None:
    """Return the slope below zero of the activation (leaky x)²; None for another activation."""
    return 0.0 if mlp.activation is relu_squared else getattr(mlp.activation, "slope", None)


def choose_kernels(model: GPT, cfg: Config, ranks: Ranks) -> list[str]:
    """Put the kernels that `launch` asks for into `model`, which is on its device, if they pass their trials.

    Returns a line for the log for each that was asked for. All ranks choose alike.
    """
    rows, compiled = micro_batch_tokens(cfg), cfg.launch.compile != "off"
    lines = []
    if cfg.launch.loss_kernel == "triton":
        lines.append(_choose(LossKernel(model), rows, ranks, compiled=compiled))
    if cfg.launch.mlp_kernel == "triton":
        lines.append(_choose(MLPKernel(model), rows, ranks, compiled=compiled))
    return lines


def _choose(kernel: LossKernel | MLPKernel, rows: int, ranks: Ranks, *, compiled: bool) -> str:
    outcome = _outcome(kernel, rows, ranks.device, compiled=compiled)
    # A kernel that one rank cannot use is used by none, because ranks that round differently would drift apart.
    reasons = ranks.gather([outcome.reason] if outcome.reason else [])
    # The mean over ranks, and near ties are ours: a rank's noise would choose anew in every run of a variant.
    ours_ms, torchs_ms = ranks.sum(outcome.ours_ms, outcome.torchs_ms)
    if not reasons and ours_ms > TIE * torchs_ms:
        reasons = ["it is slower"]
    if reasons:
        times = f" ({outcome.ours_ms:.2f} ms, torch's {outcome.torchs_ms:.2f} ms)" if outcome.ours_ms else ""
        return f"{kernel.setting}:torch, not triton: {reasons[0]}{times}"
    kernel.use()
    return f"{kernel.setting}:triton {outcome.ours_ms:.2f} ms a micro-batch, torch's {outcome.torchs_ms:.2f} ms"


def _outcome(kernel: LossKernel | MLPKernel, rows: int, device: torch.device, *, compiled: bool) -> Outcome:
    if device.type != "cuda":
        return Outcome("it is for CUDA devices")
    if problem := kernel.problem(device):
        return Outcome(problem)
    try:
        return trial(kernel.rivals(rows, device), compiled=compiled)
    # Triton and drivers fail in many ways, and torch's operations are always there.
    except Exception as error:
        return Outcome(f"it fails ({' '.join(f'{type(error).__name__}: {error}'.split())[:150]})")
