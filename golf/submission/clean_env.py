"""Clean environments: a Python interpreter with the given packages, their dependencies and nothing else."""

from __future__ import annotations

import importlib.metadata
import os
import sysconfig
import venv
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement

from golf.errors import GolfError

# PYTHONPATH is not among them, because it could let the script import this framework.
KEPT_VARIABLES = ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")


def clean_environment(folder: Path, packages: Iterable[str]) -> Path:
    """Make a virtual environment with `packages` in `folder` and return its interpreter.

    The packages are links to those installed here, so nothing is downloaded. Raises `GolfError` if one is not.
    """
    venv.EnvBuilder(symlinks=True, with_pip=False).create(folder)
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)}))
    for distribution in _with_dependencies(packages):
        for name in {file.parts[0] for file in distribution.files or ()} - {"..", "/", "__pycache__"}:
            link = site / name
            # Path files are left out, because one of them would let the script import this framework.
            if not name.endswith(".pth") and not link.exists():
                link.symlink_to(Path(str(distribution.locate_file(name))))
    return folder / "bin" / "python"


def _with_dependencies(packages: Iterable[str]) -> list[importlib.metadata.Distribution]:
    """Return the installed distributions of `packages` and everything that they require."""
    distributions: dict[str, importlib.metadata.Distribution] = {}
    pending = list(packages)
    while pending:
        name = Requirement(pending.pop()).name.lower().replace("_", "-")
        if name in distributions:
            continue
        try:
            distribution = distributions[name] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError as error:
            raise GolfError(f"The package {name}, which the script needs, is not installed here.") from error
        wanted = map(Requirement, distribution.requires or ())
        # Optional dependencies have a marker that names an extra.
        pending += [str(r) for r in wanted if r.marker is None or r.marker.evaluate({"extra": ""})]
    return list(distributions.values())


def plain_variables(**values: str) -> dict[str, str]:
    """Return the few environment variables that any process needs, and `values`."""
    # One thread takes sums in one order, so that runs agree to the last bit.
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    return {**kept, "OMP_NUM_THREADS": "1", **values}
