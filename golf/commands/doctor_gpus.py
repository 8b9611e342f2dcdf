"""Checks of `golf doctor` on GPUs: what the driver sees, whether this torch can use it, and if not, why."""

from __future__ import annotations

import os
import re
import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path

from golf.commands.diagnosis import NOTE, OK, PROBLEM, Diagnosis, first_line, output_of
from golf.words import counted, listed

# The oldest Linux driver of each CUDA major version: CUDA release notes, "CUDA Minor Version Compatibility".
OLDEST_DRIVER = {"11": (450, 80, 2), "12": (525, 60, 13), "13": (580, 65, 6)}
# Ampere (sm_80) is the first architecture with bf16 in hardware.
BF16_CAPABILITY = 80
SUBJECT = "GPU"


@dataclass(frozen=True)
class DriverView:
    """GPUs that nvidia-smi lists, or why it lists none."""

    names: tuple[str, ...] = ()
    driver: str = ""
    error: str = ""


def gpus() -> Diagnosis:
    """Check that torch can use the GPUs of this machine, and say why where it cannot."""
    import torch

    seen = driver_view()
    # torch warns with the driver's own words.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        available = torch.cuda.is_available()
    if available:
        return _usable(seen)
    if seen is None:
        # A container sees the host's driver in /proc even if the driver's tools were not passed in.
        if Path("/proc/driver/nvidia/version").exists():
            finding = "an NVIDIA driver is loaded, but nvidia-smi is missing and torch sees no GPU"
            return Diagnosis(NOTE, SUBJECT, finding, "start the container with the GPUs and driver tools passed in")
        if torch.backends.mps.is_available():
            finding = "Apple's, which launch.device=mps uses; nobody has proven it, so runs use the CPU unless told"
            advice = "compare a short run on mps with one on the CPU before you trust it"
            return Diagnosis(NOTE, SUBJECT, finding, advice)
        return Diagnosis(OK, SUBJECT, "none found; runs use the CPU (scale=laptop)")
    if seen.error:
        return Diagnosis(PROBLEM, SUBJECT, f"nvidia-smi fails ({seen.error})", "mend the NVIDIA driver, or remove it")
    reason, advice = _unusable_because(seen.driver, [str(warning.message) for warning in caught])
    return Diagnosis(PROBLEM, SUBJECT, f"{_counted(seen.names)} found, but torch cannot use it: {reason}", advice)


def driver_view() -> DriverView | None:
    """Return what nvidia-smi says, None where it is not installed."""
    if not shutil.which("nvidia-smi"):
        return None
    status, text = output_of("nvidia-smi", "--query-gpu=driver_version,name", "--format=csv,noheader")
    if status != 0:
        return DriverView(error=first_line(text) or f"status {status}")
    if not (rows := [line.partition(",") for line in text.splitlines() if "," in line]):
        return DriverView(error=first_line(text) or "no GPU is listed")
    return DriverView(tuple(name.strip() for _, _, name in rows), rows[0][0].strip())


def _usable(seen: DriverView | None) -> Diagnosis:
    """Return the state of GPUs that torch sees: whether it has kernels for them, and what slows runs down."""
    import torch

    names = tuple(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
    pairs = [torch.cuda.get_device_capability(i) for i in range(len(names))]
    capabilities = [10 * major + minor for major, minor in pairs]
    built_for = torch.cuda.get_arch_list()
    for name, capability in zip(names, capabilities, strict=True):
        if not has_kernels(built_for, capability):
            finding = f"{name} is sm_{capability}, but this torch has kernels for {listed(built_for, at_most=12)}"
            return Diagnosis(PROBLEM, SUBJECT, finding, "install a torch that is built for it")
    if error := computing_fails():
        return Diagnosis(PROBLEM, SUBJECT, f"{_counted(names)} found, but computing fails ({error})", "mend the driver")
    described = _counted(names)
    if seen and seen.driver:
        described += f", driver {seen.driver}"
    if hindrance := _hindrance(seen, len(names), min(capabilities)):
        return Diagnosis(NOTE, SUBJECT, f"{described}; {hindrance}")
    return Diagnosis(OK, SUBJECT, described)


def _hindrance(seen: DriverView | None, count: int, lowest_capability: int) -> str:
    """Return why runs on the `count` GPUs that torch sees are slower than they could be, empty if they are not."""
    from golf.launch.preflight import busy_gpus

    if seen and len(seen.names) > count:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        why = f"CUDA_VISIBLE_DEVICES={visible} hides the others" if visible else "`nvidia-smi` shows the others"
        return f"torch sees {count} of {len(seen.names)}: {why}"
    if lowest_capability < BF16_CAPABILITY:
        return "no bf16 in hardware: set model.compute_dtype=fp32 optim.muon_dtype=fp32 eval.dtype=fp32"
    # A driver that nvidia-smi cannot reach would only make the next question to it wait.
    taken = busy_gpus() if seen and not seen.error else []
    return taken[0] if taken else ""


def has_kernels(built_for: list[str], capability: int) -> bool:
    """Tell whether a torch built for architectures such as `sm_80` and `compute_90` runs on a GPU, 86 for sm_86.

    Machine code (sm) runs on later minor versions of the same major one, PTX (compute) on all later versions.
    """
    matches = [match for name in built_for if (match := re.fullmatch(r"(sm|compute)_(\d+)[af]?", name))]
    for kind, number in ((match[1], int(match[2])) for match in matches):
        if number <= capability and (kind == "compute" or number // 10 == capability // 10):
            return True
    # Names of another maker cannot be judged.
    return not matches


def computing_fails() -> str:
    """Return the error of a small sum on the first GPU, empty if it can be computed."""
    import torch

    try:
        torch.ones(8, device="cuda").sum().item()
    except (RuntimeError, AssertionError) as error:
        return first_line(str(error))
    return ""


def cpu_arithmetic() -> Diagnosis:
    """Report the CPU and whether it multiplies bf16 matrices in hardware."""
    from golf.settings.hardware import cpu_cores, cpu_name, detect

    dtype = "bf16 in hardware" if detect().cpu_bf16 else "bf16 emulated, so CPU runs compute in fp32"
    return Diagnosis(OK, "CPU", f"{cpu_name()}, {counted(cpu_cores(), 'core')}, {dtype}")


def _unusable_because(driver: str, warned: list[str]) -> tuple[str, str]:
    """Return why torch sees none of the GPUs that the driver lists, and what to do."""
    import torch

    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in ("", "-1"):
        return f"CUDA_VISIBLE_DEVICES={visible} hides it", "unset CUDA_VISIBLE_DEVICES"
    if (cuda := torch.version.cuda) is None:
        return f"torch {torch.__version__} is built without CUDA", "install torch's CUDA build in its place"
    oldest = OLDEST_DRIVER.get(cuda.partition(".")[0])
    if oldest and tuple(map(int, re.findall(r"\d+", driver))) < oldest:
        reason = f"driver {driver} is too old for CUDA {cuda}, which needs {'.'.join(map(str, oldest))}"
        return reason, "update the driver, or install a torch built for an older CUDA"
    words = first_line(next(iter(warned), "")) or "CUDA does not start"
    return words, 'ask torch itself: python -c "import torch; torch.cuda.init()"'


def _counted(names: tuple[str, ...]) -> str:
    return f"{len(names)}× {listed(sorted(set(names)))}"
