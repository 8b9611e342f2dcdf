"""The hardware of this machine, and the choices that follow from it where a setting is `auto`.

Every choice ends up in the resolved configuration and is printed with its reason.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import netrc
import os
import shutil
import sysconfig
import urllib.parse
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from golf.challenge import RECORD_GPUS
from golf.errors import GolfError
from golf.paths import ROOT
from golf.settings.config import Config, mlp_hidden
from golf.system import cpu_cores as cpu_cores
from golf.system import cpu_flags
from golf.system import cpu_name as cpu_name
from golf.system import memory_bytes as memory_bytes

FULL_LENGTH = ("record", "one_card", "two_cards", "four_cards")  # scales with the steps of a record run
FINEWEB_VAL = ROOT / "data/datasets/fineweb10B_sp1024/fineweb_val_000000.bin"
HOPPER_GPUS = ("H100", "H200", "H800", "GH200")
FLASH_MULTIPLE = 8  # channels of a head that flash attention needs a multiple of
CPU_COMPILE_SECONDS = 25  # time to compile one block without a cache, on two cores
CPU_CORE_FLOPS = 3e10  # floating-point operations a second of training on a core; eager runs reach 1.5e10 to 3.5e10
CPU_COMPILE_GAIN = {"fp32": 0.15, "bf16": 0.27}  # share of the training time that compiling saves; docs/benchmarks.md


@dataclass(frozen=True)
class Hardware:
    """The parts of a machine that settings depend on."""

    gpus: int  # visible GPUs
    gpu_name: str  # name of the first GPU as torch reports it; empty without one
    hopper: bool  # Hopper GPU, the only kind that flash attention 3 supports
    cpu_cores: int  # cores that this process may use
    cpu_bf16: bool  # native bf16 matrix products on the CPU; emulated ones are ten times slower than fp32
    cpu_compiler: bool  # C++ compiler and Python headers, which torch.compile needs for CPU code
    mps: bool = False  # Apple's GPU, which torch reaches by Metal Performance Shaders


_assumed: ContextVar[Hardware | None] = ContextVar("assumed hardware", default=None)


@contextlib.contextmanager
def assumed(hardware: Hardware | None) -> Iterator[None]:
    """Compose and plan for `hardware` in place of this machine within the block. None changes nothing.

    Hydra calls the resolvers of conf/ without a way to hand them an argument, so the block is what carries it.
    """
    token = _assumed.set(hardware)
    try:
        yield
    finally:
        _assumed.reset(token)


def detect() -> Hardware:
    """Return the hardware of this machine, or within `assumed` the one given there."""
    return _assumed.get() or _this_machine()


def require_device(device: str) -> None:
    """Raise `GolfError` if `launch.device` names a device that this machine lacks."""
    if device == "cuda" and not detect().gpus:
        raise GolfError(
            "launch.device=cuda, but torch finds no CUDA GPU here: use launch.device=auto, or install a CUDA build of "
            "torch and check that nvidia-smi lists the GPU."
        )
    if device == "mps" and not detect().mps:
        raise GolfError("launch.device=mps, but torch finds no Apple GPU here: use launch.device=auto.")


def node_with(gpus: int, gpu_name: str) -> Hardware:
    """Return the hardware of a cluster's node of which only the GPUs are known."""
    hopper = any(name in gpu_name for name in HOPPER_GPUS)
    return Hardware(gpus, gpu_name, hopper, cpu_cores(), cpu_bf16=False, cpu_compiler=True)


@functools.cache
def _this_machine() -> Hardware:
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return Hardware(
        gpus=gpus,
        gpu_name=torch.cuda.get_device_name(0) if gpus else "",
        hopper=bool(gpus) and torch.cuda.get_device_capability(0)[0] == 9,
        cpu_cores=cpu_cores(),
        cpu_bf16=cpu_flags() & {"amx_bf16", "avx512_bf16"} != set(),
        cpu_compiler=_can_compile(),
        mps=torch.backends.mps.is_available(),
    )


def _can_compile() -> bool:
    compiler = any(shutil.which(c) for c in (os.environ.get("CXX", "g++"), "clang++"))
    return compiler and Path(sysconfig.get_paths()["include"], "Python.h").exists()


def default_choice(group: str, scale: str = "", fineweb: str = "fineweb_sp1024") -> str:
    """Return the option of a config group for a command line that names none. `scale` is the scale chosen.

    `fineweb` is the variant of the challenge's data that an experiment is for.
    """
    has_fineweb = FINEWEB_VAL.exists()
    if group == "scale":
        gpus = detect().gpus
        return "laptop" if gpus == 0 else "record" if gpus >= RECORD_GPUS and has_fineweb else "single_gpu"
    if group == "model":
        return "9l" if detect().gpus else "4l"
    assert group == "data", group
    if scale in FULL_LENGTH or (scale == "single_gpu" and has_fineweb):
        return fineweb
    return "pydocs_sp1024_caseops" if fineweb.endswith("caseops") else "pydocs"


def settle(cfg: Config) -> list[str]:
    """Replace every `auto` in `cfg` in place. Return one `key=value (reason)` line for each."""
    hardware, chosen = detect(), []

    def choose(group: str, key: str, value: str, reason: str) -> None:
        node = getattr(cfg, group)
        if getattr(node, key) == "auto":
            setattr(node, key, value)
            chosen.append(f"{group}.{key}={value} ({reason})")

    # The device comes first: every other choice depends on it.
    # Nobody has proven mps yet, so that it is taken by those who name it.
    without = "launch.device=mps is unproven" if hardware.mps else "no GPU found"
    choose("launch", "device", "cuda" if hardware.gpus else "cpu", hardware.gpu_name or without)
    cuda = cfg.launch.device == "cuda"
    native = "GPU" if cuda else "this CPU multiplies bf16 natively"
    dtype, reason = ("bf16", native) if cuda or hardware.cpu_bf16 else ("fp32", "most CPUs only emulate bf16")
    if cfg.launch.device == "mps":
        dtype, reason = "fp32", "bf16 is unproven on mps"
    choose("model", "compute_dtype", dtype, reason)
    choose("optim", "muon_dtype", dtype, reason)
    choose("eval", "dtype", "bf16" if cuda else "fp32", "as upstream scores" if cuda else "exact gaps")
    choose("model", "attention", *_attention_choice(cfg, hardware))
    choose("launch", "compile", *_compile_choice(cfg, hardware))
    tried, not_tried = "tried before the clock", "the kernel in Triton is for"
    choose("launch", "loss_kernel", *(("triton", tried) if cuda else ("torch", f"{not_tried} GPUs")))
    hopper = cuda and hardware.hopper
    choose("launch", "mlp_kernel", *(("triton", tried) if hopper else ("torch", f"{not_tried} Hopper GPUs")))
    if cfg.track.backend == "wandb":
        choose("track", "mode", *_track_choice())
    if cuda and cfg.data.built_from and not FINEWEB_VAL.exists():
        chosen.append(f"data={cfg.data.name} (FineWeb is not in data/; `golf data get` fetches it)")
    return chosen


def _attention_choice(cfg: Config, hardware: Hardware) -> tuple[str, str]:
    """Choose flash attention 3 where it can be imported on a Hopper GPU, else torch's own kernel.

    Torch has one for whole rows and one for documents. Flash attention 2 is never chosen: torch's kernels are the same.
    """
    if {cfg.launch.device, cfg.model.compute_dtype, cfg.eval.dtype} != {"cuda", "bf16"}:
        return "sdpa", "runs everywhere"
    head_dim = cfg.model.model_dim // cfg.model.num_heads
    if head_dim % FLASH_MULTIPLE:
        return "sdpa", f"flash attention 3 needs heads of a multiple of {FLASH_MULTIPLE} channels, not {head_dim}"
    torchs = "varlen" if cfg.eval.documents else "sdpa"
    if not hardware.hopper:
        return torchs, "flash attention 3 is for Hopper GPUs"
    if problem := _flash3_problem():
        return torchs, problem
    return "fa3", "flash_attn_interface can be imported, and the GPU is a Hopper"


def _flash3_problem() -> str:
    """Return why flash attention 3 cannot be used here; empty if it can be imported."""
    try:
        usable = callable(importlib.import_module("flash_attn_interface").flash_attn_func)
    except ModuleNotFoundError:
        return "flash_attn_interface is not installed"
    except Exception as error:
        # A package that was built for another torch fails in many ways.
        return f"flash_attn_interface cannot be imported: {' '.join(str(error).split())[:100]}"
    return "" if usable else "flash_attn_interface has no function flash_attn_func"


def _compile_choice(cfg: Config, hardware: Hardware) -> tuple[str, str]:
    if cfg.launch.device == "cuda":
        return "full", "one graph on a GPU"
    if cfg.launch.device == "mps":
        return "off", "nothing is compiled for mps"
    seconds = _expected_seconds(cfg, hardware)
    if seconds * CPU_COMPILE_GAIN.get(cfg.model.compute_dtype, 0.0) < CPU_COMPILE_SECONDS:
        return "off", f"about {seconds:.3g} s of training on this CPU do not pay back compiling"
    return ("blocks", "pays back") if hardware.cpu_compiler else ("off", "no C++ compiler or no Python headers found")


def _expected_seconds(cfg: Config, hardware: Hardware) -> float:
    """Return about how many seconds a CPU trains: until the clock or, if that is sooner or there is none, all steps."""
    model = cfg.model
    weights = model.vocab_size + model.num_layers * (3 * model.model_dim + 2 * mlp_hidden(model))
    # Six operations a weight and token: two forward, four backward.
    flops = 6 * weights * model.model_dim * cfg.data.train_batch_tokens * cfg.schedule.iterations
    by_steps = flops / (CPU_CORE_FLOPS * hardware.cpu_cores)
    return min(by_steps, cfg.budget.train_seconds or by_steps)


def _track_choice() -> tuple[str, str]:
    """Choose `online` where W&B's client would find a key: in the variable, or in netrc for the server's host."""
    if os.environ.get("WANDB_API_KEY"):
        return "online", "WANDB_API_KEY is set"
    host = urllib.parse.urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname or ""
    with contextlib.suppress(OSError, netrc.NetrcParseError):
        if netrc.netrc(os.environ.get("NETRC")).authenticators(host):
            return "online", f"netrc has a key for {host}"
    return "offline", "no W&B key found; `golf sync` uploads later"
