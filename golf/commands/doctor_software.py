"""Checks of `golf doctor` on what is installed: Python, packages, codecs, compiler, flash attention, W&B, Slurm."""

from __future__ import annotations

import importlib.util
import platform
import shutil
from importlib.metadata import PackageNotFoundError, metadata, requires, version

from golf.commands.diagnosis import NOTE, OK, PROBLEM, Diagnosis, first_line, output_of
from golf.words import listed

INSTALL = "run `pip install -e .` in golf's folder"


def python() -> Diagnosis:
    """Check the version of Python against the one that golf asks for."""
    from packaging.specifiers import SpecifierSet

    here = platform.python_version()
    try:
        wanted = metadata("golf")["Requires-Python"] or ""
    except PackageNotFoundError:
        return Diagnosis(NOTE, "Python", f"{here}; golf is not installed in it", INSTALL)
    if not SpecifierSet(wanted).contains(here, prereleases=True):
        return Diagnosis(PROBLEM, "Python", f"{here} is outside {wanted}", f"install golf with Python {wanted}")
    return Diagnosis(OK, "Python", here)


def packages() -> Diagnosis:
    """Check that every package that golf depends on is installed in a supported version."""
    from packaging.requirements import Requirement

    needed = [Requirement(line) for line in requires("golf") or [] if "extra ==" not in line]
    wrong, missing = [], []
    for requirement in needed:
        try:
            here = version(requirement.name)
        except PackageNotFoundError:
            missing.append(requirement.name)
            continue
        if not requirement.specifier.contains(here, prereleases=True):
            wrong.append(f"{requirement.name} {here} is outside {requirement.specifier}")
    if missing:
        return Diagnosis(PROBLEM, "packages", f"{listed(missing)} not installed", INSTALL)
    if wrong:
        return Diagnosis(NOTE, "packages", listed(wrong), f"golf was not tried with that; {INSTALL}")
    return Diagnosis(OK, "packages", f"all {len(needed)} installed, in supported versions")


def torch_itself() -> Diagnosis:
    """Check that torch can be imported at all."""
    try:
        import torch
    except Exception as error:
        reason = f"importing it fails ({type(error).__name__}: {first_line(str(error))})"
        return Diagnosis(PROBLEM, "torch", reason, INSTALL)
    if torch.version.cuda:
        return Diagnosis(OK, "torch", f"{torch.__version__}, built for CUDA {torch.version.cuda}")
    return Diagnosis(OK, "torch", f"{torch.__version__}, built without CUDA")


def compiler() -> Diagnosis:
    """Check for the C++ compiler and the headers that torch.compile needs for CPU code."""
    from golf.settings.hardware import detect

    if detect().cpu_compiler:
        return Diagnosis(OK, "C++ compiler", "found, with Python's headers")
    advice = "install g++ and Python's development headers, or set launch.compile=off"
    return Diagnosis(NOTE, "C++ compiler", "compiler or Python's headers missing, torch.compile needs both", advice)


def flash_attention() -> Diagnosis:
    """Import the flash attention packages that are installed; a run would choose one that is found."""
    from golf.errors import GolfError
    from golf.settings.config import ModelConfig
    from golf.training.model.attention import FLASH_MODULES, kernel

    works, broken = [], []
    for backend, module in FLASH_MODULES.items():
        if importlib.util.find_spec(module) is None:
            continue
        try:
            kernel(ModelConfig(attention=backend))
            works.append(backend)
        except (GolfError, AttributeError) as error:
            broken.append(f"{module} cannot be used ({first_line(str(error.__cause__ or error))})")
    if broken:
        advice = "reinstall it for this torch, remove it, or set model.attention=sdpa"
        return Diagnosis(PROBLEM, "flash attention", listed(broken), advice)
    if works:
        return Diagnosis(OK, "flash attention", f"{listed(works)} can be imported")
    return Diagnosis(OK, "flash attention", "not installed, torch's own kernels are used (model.attention=sdpa)")


def codecs() -> Diagnosis:
    """Check the packages of the codecs that golf does not bring itself."""
    from golf.artifact.codec.codecs import NEEDS_PACKAGE

    missing = [codec for codec, package in NEEDS_PACKAGE.items() if importlib.util.find_spec(package) is None]
    if not missing:
        return Diagnosis(OK, "codecs", "all can be used")
    names = " and ".join(f"quant.codec={codec}" for codec in sorted(missing))
    return Diagnosis(NOTE, "codecs", f"{names} cannot be used", "pip install 'golf[codec]'")


def wandb() -> Diagnosis:
    """Check for W&B's client and for a key, which is never shown."""
    spec = importlib.util.find_spec("wandb")
    # A folder wandb/ with recorded runs is found, too, but has no origin.
    if spec is None or spec.origin is None:
        return Diagnosis(OK, "W&B", "client not installed; only track=wandb needs it (pip install 'golf[wandb]')")
    from golf.settings.composition import compose

    client = f"client {version('wandb')}"
    if compose(["track=wandb"]).track.mode == "online":
        return Diagnosis(OK, "W&B", f"{client} and a key found: track=wandb uploads")
    return Diagnosis(OK, "W&B", f"{client} found, no key: track=wandb records offline until `wandb login`")


def slurm() -> Diagnosis:
    """Check that Slurm's commands are here, that its controller answers, and that submitit is installed."""
    if not shutil.which("sbatch"):
        return Diagnosis(OK, "Slurm", "not on this machine; `golf train -m` runs sweeps here")
    status, text = output_of("sinfo", "--noheader", "--format=%P")
    if status != 0:
        advice = "ask the cluster's administrator, golf submit needs it"
        return Diagnosis(NOTE, "Slurm", f"its controller does not answer ({first_line(text)})", advice)
    partitions = f"partitions {listed(text.split())}"
    if importlib.util.find_spec("submitit") is None:
        return Diagnosis(NOTE, "Slurm", f"{partitions}, but submitit is not installed", "pip install 'golf[slurm]'")
    return Diagnosis(OK, "Slurm", partitions)
