"""Print the lowest versions that pyproject.toml allows, as requirements for pip. `make test-lowest` installs them.

Torch is left out: its lowest version has no build for CPUs alone on PyPI.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from packaging.requirements import Requirement

PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
LEFT_OUT = ("torch",)


def lowest(requirement: Requirement) -> str:
    """Return `name==version` with the version after `>=` or `==`. Raises `ValueError` if there is neither."""
    bounds = [spec.version for spec in requirement.specifier if spec.operator in (">=", "==")]
    if len(bounds) != 1:
        raise ValueError(f"{requirement} has no lowest version: write one with >=.")
    return f"{requirement.name}=={bounds[0]}"


def lowest_versions() -> list[str]:
    """Return the lowest versions of the dependencies and of what the tests need, sorted."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    wanted = map(Requirement, [*project["dependencies"], *project["optional-dependencies"]["dev"]])
    return sorted({lowest(one) for one in wanted if one.name not in LEFT_OUT})


if __name__ == "__main__":
    print("\n".join(lowest_versions()))
