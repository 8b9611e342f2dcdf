"""Ideas that a test looks at, forgotten after it."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from golf.idea_folders import use_ideas

OUTSIDE = Path(__file__).parent / "outside"


@pytest.fixture
def outside(forgotten: None, tmp_path: Path) -> Path:
    """A folder with the ideas random_map and delta_rule, which golf looks into."""
    folder = tmp_path / "outside"
    shutil.copytree(OUTSIDE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    use_ideas([str(folder)])
    return folder


@pytest.fixture
def write(forgotten: None, tmp_path: Path) -> Callable[..., Path]:
    """A function that writes an idea with the given module text and returns its folder."""

    def made(name: str, text: str, place: str = "written") -> Path:
        folder = tmp_path / place / name
        folder.mkdir(parents=True)
        (folder / f"{name}.py").write_text(text)
        return folder

    return made
