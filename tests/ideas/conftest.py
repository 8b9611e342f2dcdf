"""Ideas that a test looks at, forgotten after it."""

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hydra.core.config_store import ConfigStore

from golf.idea_folders import VARIABLE, use_ideas
from golf.registry import TECHNIQUE_TYPES, technique_types
from golf.settings import composition

OUTSIDE = Path(__file__).parent / "outside"


@pytest.fixture
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget what a test registers: techniques, schemas, modules and folders."""
    monkeypatch.setenv(VARIABLE, "")
    composition.register_techniques()
    techniques, modules = dict(technique_types()), set(sys.modules)
    options = ConfigStore.instance().repo["tech"]
    before = dict(options)
    yield
    TECHNIQUE_TYPES.clear()
    TECHNIQUE_TYPES.update(techniques)
    options.clear()
    options.update(before)
    for name in set(composition._registered) - set(techniques):
        del composition._registered[name]
    for name in [name for name in sys.modules if name not in modules and name.split(".")[0] == "ideas"]:
        del sys.modules[name]


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
