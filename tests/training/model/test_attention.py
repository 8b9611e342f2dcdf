"""The choice of the attention kernel: what is refused, what falls back, and what it leaves alone."""

import dataclasses
from collections.abc import Iterator
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F

from golf.errors import GolfError
from golf.lab.corpora.own_text import OwnDataset
from golf.lab.proofs.run_proofs import failed_proofs
from golf.settings import hardware
from golf.settings.config import Config, ModelConfig
from golf.settings.hardware import Hardware
from golf.training.model.attention import choose_kernel, kernel, try_kernel
from tests import flash_stand_ins
from tests.flash_stand_ins import flash_attention_2, flash_attention_3, flash_attention_4, install
from tests.support import compose, tiny_overrides

CUDA = torch.device("cuda")
HOPPER = Hardware(8, "NVIDIA H100 80GB HBM3", True, 16, cpu_bf16=False, cpu_compiler=True)
ADA = dataclasses.replace(HOPPER, gpu_name="NVIDIA GeForce RTX 4090", hopper=False)
HALVES = ["model.compute_dtype=bf16", "eval.dtype=bf16", "launch.device=cuda"]


SWITCHES = {
    torch.backends.cuda.enable_flash_sdp: torch.backends.cuda.flash_sdp_enabled,
    torch.backends.cuda.enable_cudnn_sdp: torch.backends.cuda.cudnn_sdp_enabled,
    torch.backends.cuda.enable_mem_efficient_sdp: torch.backends.cuda.mem_efficient_sdp_enabled,
    torch.backends.cuda.enable_math_sdp: torch.backends.cuda.math_sdp_enabled,
}


@pytest.fixture(autouse=True)
def sdp_switches() -> Iterator[None]:
    before = {switch: is_on() for switch, is_on in SWITCHES.items()}
    yield
    for switch, was_on in before.items():
        switch(was_on)


def on_gpu(tiny: OwnDataset, attention: str, *more: str) -> Config:
    with hardware.assumed(HOPPER):
        return compose([*tiny_overrides(tiny), *HALVES, f"model.attention={attention}", *more])


@pytest.mark.parametrize(
    "attention", ["varlen", *(pytest.param(a, marks=pytest.mark.slow) for a in ("cudnn", "fa2", "fa3"))]
)
def test_proofs_on_the_cpu_run_under_every_choice_for_the_gpu(
    attention: str, tiny: OwnDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, flash_attention_2(), flash_attention_3())
    cfg = on_gpu(tiny, attention, "tech=[smear]", "model.model_dim=32", "eval=sliding64", "eval.stride=8")
    choose_kernel(CUDA, cfg)
    chosen = [is_on() for is_on in SWITCHES.values()]
    assert failed_proofs(cfg) == []
    assert [is_on() for is_on in SWITCHES.values()] == chosen


@pytest.mark.parametrize(("compute", "score"), [("bf16", "bf16"), ("bf16", "fp32"), ("fp32", "bf16")])
def test_float32_keeps_plain_operations_wherever_a_run_has_it(compute: str, score: str, tiny: OwnDataset) -> None:
    """No fast kernel takes float32, so that a score or a pass without another way would end the run."""
    torch.backends.cuda.enable_math_sdp(True)
    choose_kernel(CUDA, on_gpu(tiny, "sdpa", f"model.compute_dtype={compute}", f"eval.dtype={score}"))
    assert torch.backends.cuda.math_sdp_enabled() is (compute != score)


@pytest.mark.parametrize(
    ("backend", "module", "line"),
    [
        ("fa2", flash_attention_2(), "attention_kernel:flash_attn 2.8.3"),
        ("fa3", flash_attention_3(), "attention_kernel:flash_attn_interface 3.0.0"),
        ("fa3", flash_attention_3(returns_statistics=True), "attention_kernel:flash_attn_interface 3.0.0"),
    ],
)
def test_flash_attention_is_called_as_it_is_declared(
    backend: str, module: ModuleType, line: str, tiny: OwnDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, module)
    assert choose_kernel(CUDA, on_gpu(tiny, backend)) == line
    attend = kernel(ModelConfig(attention=backend))
    q, k = torch.randn(2, 5, 4, 8), torch.randn(2, 5, 2, 8)
    with pytest.raises(RuntimeError, match="must be on CUDA"):
        attend(q, k, k)
    # Everything but the device is checked on the CPU, where the stand-in can compute.
    monkeypatch.setattr(flash_stand_ins, "require_flash_inputs", lambda *_: None)
    queries, keys = q.transpose(1, 2), k.repeat_interleave(2, dim=2).transpose(1, 2)
    expected = F.scaled_dot_product_attention(queries, keys, keys, is_causal=True)
    torch.testing.assert_close(attend(q, k, k), expected.transpose(1, 2))


@pytest.mark.parametrize("problem", ["absent", "without its function", "for another torch"])
def test_a_package_that_cannot_be_used_is_one_sentence(problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, *([flash_attention_4()] if problem == "without its function" else []))
    if problem == "for another torch":

        def fail(name: str) -> ModuleType:
            raise OSError("libtorch_cuda.so: undefined symbol: _ZN3c10")

        monkeypatch.setattr("golf.training.model.attention.importlib.import_module", fail)
    with pytest.raises(GolfError, match="install the package for this torch or use"):
        kernel(ModelConfig(attention="fa2"))


def broken() -> ModuleType:
    """Return a module that raises whatever is asked of it."""

    class Broken(ModuleType):
        def __getattr__(self, name: str) -> object:
            raise RuntimeError("built for torch 2.8")

    return Broken("flash_attn_interface")


@pytest.mark.parametrize(
    ("machine", "modules", "width", "chosen", "reason"),
    [
        (HOPPER, [flash_attention_3()], 32, "fa3", "can be imported"),
        (HOPPER, [flash_attention_2()], 32, "sdpa", "flash_attn_interface is not installed"),
        (HOPPER, [flash_attention_4()], 32, "sdpa", "flash_attn_interface is not installed"),
        (HOPPER, [broken()], 32, "sdpa", "cannot be imported: built for torch 2.8"),
        (HOPPER, [flash_attention_3()], 16, "sdpa", "heads of a multiple of 8 channels, not 4"),
        (ADA, [flash_attention_2(), flash_attention_3()], 32, "sdpa", "is for Hopper GPUs"),
        (HOPPER, [flash_attention_3()], 32, "documents fa3", "can be imported"),
        (HOPPER, [], 32, "documents varlen", "flash_attn_interface is not installed"),
        (ADA, [], 32, "documents varlen", "is for Hopper GPUs"),
        (ADA, [], 16, "documents sdpa", "heads of a multiple of 8 channels, not 4"),
    ],
)
def test_auto_imports_what_it_chooses(
    machine: Hardware,
    modules: list[ModuleType],
    width: int,
    chosen: str,
    reason: str,
    tiny: OwnDataset,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch, *modules)
    monkeypatch.setattr(hardware, "detect", lambda: machine)
    cfg = compose([*tiny_overrides(tiny), f"model.model_dim={width}", "launch.device=cpu"])
    cfg.launch.device, cfg.model.compute_dtype, cfg.eval.dtype, cfg.model.attention = "cuda", "bf16", "bf16", "auto"
    cfg.eval.documents = chosen.startswith("documents")
    (line,) = hardware.settle(cfg)
    assert line.startswith(f"model.attention={chosen.split()[-1]} (") and reason in line


def test_a_kernel_that_fails_on_the_device_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, flash_attention_3())
    shape = ModelConfig(model_dim=56, num_heads=2, num_kv_heads=1, compute_dtype="bf16")
    try_kernel(torch.device("cpu"), dataclasses.replace(shape, attention="sdpa"))
    with pytest.raises(GolfError, match=r"model.attention=fa3 fails on this cpu device with heads of 28 channels \(q"):
        try_kernel(torch.device("cpu"), dataclasses.replace(shape, attention="fa3"))
