"""Kernels in Triton are used where a trial finds them equal and faster; every other case says why not."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from golf.lab.corpora.own_text import OwnDataset
from golf.lab.plan.machines import parse_machine
from golf.run.identity import variant_id
from golf.run.result import read_result
from golf.settings.config import Config, ModelConfig
from golf.settings.hardware import assumed
from golf.training.model.gpt import GPT, capped_losses
from golf.training.model.kernels import choice
from golf.training.model.kernels.choice import LossKernel, MLPKernel, choose_kernels
from golf.training.model.kernels.trial import Outcome, Rivals, difference, trial
from golf.training.model.layers import MLP, expand_and_contract
from golf.training.ranks import Ranks
from ideas.swiglu.swiglu import GatedMLP
from tests.support import compose, golf_main, only_run, tiny_overrides

CUDA = torch.device("cuda")
SMALL = ModelConfig(num_layers=2, model_dim=32, num_heads=4, vocab_size=40, attention="sdpa", compute_dtype="bf16")


def model_of(**changes: Any) -> GPT:
    return GPT(dataclasses.replace(SMALL, **changes))


def asking(*settings: str) -> Config:
    cfg = Config(model=SMALL)
    for setting in settings:
        setattr(cfg.launch, setting, "triton")
    return cfg


def squares(x: Tensor) -> Tensor:
    return x * x


def squares_by_detours(x: Tensor) -> Tensor:
    for _ in range(40):
        x = x @ torch.eye(x.size(1))
    return x * x


def test_without_cuda_torchs_operations_stay_and_the_log_says_so() -> None:
    model = model_of()
    lines = choose_kernels(model, asking("loss_kernel", "mlp_kernel"), Ranks())
    assert lines == [
        "loss_kernel:torch, not triton: it is for CUDA devices",
        "mlp_kernel:torch, not triton: it is for CUDA devices",
    ]
    assert model.losses is capped_losses
    assert {mlp.compute for mlp in model.modules() if isinstance(mlp, MLP)} == {expand_and_contract}
    assert choose_kernels(model, asking(), Ranks()) == []


@pytest.mark.parametrize(
    ("changes", "edit", "reason"),
    [
        ({"compute_dtype": "fp32"}, None, "compute_dtype=bf16"),
        ({"mlp_hidden": 100}, None, "multiples of 8"),
        ({}, lambda mlp: setattr(mlp, "activation", torch.nn.functional.gelu), "ReLU² and LeakyReLU²"),
        ({}, lambda mlp: None, ""),
    ],
)
def test_models_that_the_mlp_kernel_cannot_compute(
    changes: dict[str, Any], edit: Callable[[Any], Any] | None, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    model = model_of(**changes)
    if edit:
        edit(model.blocks[1].mlp)
    problem = MLPKernel(model).problem(CUDA)
    assert reason in problem and bool(reason) == bool(problem)


def test_other_gpus_other_mlps_and_larger_caps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    model = model_of()
    assert MLPKernel(model).problem(CUDA) == "it is for Hopper GPUs"
    model.blocks[0].mlp = GatedMLP(32, 64)
    assert "LeakyReLU²" in MLPKernel(model).problem(CUDA)
    assert LossKernel(model_of(logit_softcap=61.0)).problem(CUDA) == "it is for caps up to 60"
    assert LossKernel(model_of(logit_softcap=60.0)).problem(CUDA) == ""


@pytest.mark.parametrize(
    ("ours", "torchs", "reason"),
    [
        (squares, squares_by_detours, ""),
        (squares_by_detours, squares, ""),
        (lambda x: squares(x).clamp(max=4), squares_by_detours, "results differ"),
        # Only its gradient is wrong.
        (lambda x: x.detach() * x, squares_by_detours, "results differ"),
    ],
)
def test_a_trial_compares_results_gradients_and_times(
    ours: Callable[..., Tensor], torchs: Callable[..., Tensor], reason: str
) -> None:
    torch.manual_seed(0)
    outcome = trial(Rivals(ours, torchs, [torch.randn(64, 64)]), compiled=False)
    assert reason in outcome.reason and bool(reason) == bool(outcome.reason)
    assert (outcome.ours_ms > 0) == (outcome.torchs_ms > 0) == ("differ" not in reason)


def test_one_wrong_tile_and_what_is_no_number_are_found() -> None:
    torch.manual_seed(0)
    right = torch.randn(4096, 256)
    assert difference(right.bfloat16(), right) == ""
    wrong = right.clone()
    wrong[:16, :16] += 1.0
    assert float((wrong - right).norm() / right.norm()) < 0.02  # the distance alone would miss it
    assert "differ" in difference(wrong, right)
    wrong[0, 0] = torch.nan
    assert "nan" in difference(wrong, right)
    noisy = right + 0.03 * torch.randn_like(right)
    assert "differ" in difference(noisy, right)


@pytest.mark.parametrize(
    ("preset", "machine", "loss", "mlp"),
    [
        ("records/2026-04-27_caseops_lqer_9hp", "8xh100", "triton", "triton"),
        ("records/2026-04-27_caseops_lqer_9hp", "8xa100", "triton", "torch"),
        ("records/2026-04-10_varlen_attn", "8xh100", "torch", "triton"),
        ("records/2026-04-09_sp8192_ngram_tilt", "8xh100", "torch", "torch"),
        ("records/2026-04-27_caseops_lqer_9hp", None, "torch", "torch"),
    ],
)
def test_records_have_the_kernels_that_they_had_on_the_gpus_they_are_for(
    preset: str, machine: str | None, loss: str, mlp: str
) -> None:
    on = parse_machine(machine) if machine else None
    with assumed(on.hardware() if on else None):
        cfg = compose([f"experiment={preset}", "launch.device=auto", "scale=record"])
        without = compose(
            [f"experiment={preset}", "scale=record", "launch.loss_kernel=torch", "launch.mlp_kernel=torch"]
        )
    assert (cfg.launch.loss_kernel, cfg.launch.mlp_kernel) == (loss, mlp)
    assert variant_id(cfg) == variant_id(without)


class Elsewhere(Ranks):
    """The first of two ranks, whose other one has something to say."""

    def gather(self, sentences: list[Any]) -> list[Any]:
        return [*sentences, "it fails on another rank"]

    def sum(self, *values: float) -> list[float]:
        return list(values)


@pytest.mark.parametrize("kernel", [LossKernel, MLPKernel])
def test_torchs_operations_pass_the_trial_of_a_kernel(kernel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The inputs, and the definition that a kernel is compared with, are those of the model."""
    model = model_of()
    fused = types.SimpleNamespace(fused_losses=capped_losses, fused_mlp=defined_mlp)
    monkeypatch.setattr(choice, "kernel_module", lambda name: fused)
    state = torch.get_rng_state()
    outcome = trial(kernel(model).rivals(24, torch.device("cpu")), compiled=False)
    assert outcome.reason == "" and outcome.ours_ms > 0
    assert torch.equal(torch.get_rng_state(), state)  # the training draws what it would have drawn


def defined_mlp(x: Tensor, up: Tensor, down: Tensor, slope: float) -> Tensor:
    assert slope == 0.0
    return F.linear(F.linear(x, up).relu().square(), down)


def test_kernels_are_used_if_all_ranks_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[str] = []
    monkeypatch.setattr(choice, "trial", lambda rivals, compiled: Outcome("", 1.0, 2.0))
    monkeypatch.setattr(LossKernel, "rivals", lambda self, rows, device: rows)
    monkeypatch.setattr(LossKernel, "use", lambda self: used.append(self.setting))
    cfg = asking("loss_kernel")
    assert choose_kernels(model_of(), cfg, Elsewhere(0, 2, CUDA)) == [
        "loss_kernel:torch, not triton: it fails on another rank (1.00 ms, torch's 2.00 ms)"
    ]
    assert used == []
    assert choose_kernels(model_of(), cfg, Ranks(device=CUDA)) == [
        "loss_kernel:triton 1.00 ms a micro-batch, torch's 2.00 ms"
    ]
    assert used == ["loss_kernel"]


class Slow(Ranks):
    """One of two ranks, of which the other takes `times` as long with the kernel."""

    times = 1.0

    def gather(self, sentences: list[Any]) -> list[Any]:
        return sentences

    def sum(self, *values: float) -> list[float]:
        ours, torchs = values
        return [ours + self.times * ours, 2 * torchs]


@pytest.mark.parametrize(("times", "is_used"), [(1.0, True), (1.05, True), (1.2, False)])
def test_near_ties_are_the_kernels_and_the_ranks_mean_decides(
    times: float, is_used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One rank on which torch's operations won by a hair would else choose for the run, and not for the next seed's."""
    monkeypatch.setattr(choice, "trial", lambda rivals, compiled: Outcome("", 1.0, 1.0))
    monkeypatch.setattr(LossKernel, "rivals", lambda self, rows, device: rows)
    monkeypatch.setattr(LossKernel, "use", lambda self: None)
    monkeypatch.setattr(Slow, "times", times)
    (line,) = choose_kernels(model_of(), asking("loss_kernel"), Slow(0, 2, CUDA))
    assert line.startswith("loss_kernel:triton" if is_used else "loss_kernel:torch, not triton: it is slower (1.00 ms")


def test_a_kernel_that_fails_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Rivals:
        raise RuntimeError("out of\nshared memory")

    monkeypatch.setattr(LossKernel, "rivals", fail)
    (line,) = choose_kernels(model_of(), asking("loss_kernel"), Ranks(device=CUDA))
    assert line == "loss_kernel:torch, not triton: it fails (RuntimeError: out of shared memory)"


@pytest.mark.slow
def test_a_run_writes_down_what_was_chosen(tiny: OwnDataset, runs: Path) -> None:
    done = golf_main(*tiny_overrides(tiny), "launch.loss_kernel=triton", "launch.mlp_kernel=triton")
    assert done.returncode == 0, done.stderr
    result, log = read_result(only_run(runs) / "result.json"), (only_run(runs) / "train.log").read_text()
    assert len(result.kernels) == 2 and set(result.kernels) <= set(log.splitlines())
