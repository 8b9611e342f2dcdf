"""Ideas: techniques that live in folders of their own, in this checkout, anywhere else, or in installed packages.

An idea NAME is a folder with the module NAME.py, which registers the technique NAME, and if it likes with NAME.yaml,
its values, a test and a page. `ideas/` of the checkout is always looked into. The variable GOLF_IDEAS and the override
ideas= name further folders, each an idea or a folder of ideas. A package names its ideas by entry points of the group
`golf.ideas`, NAME = "package.module".
"""

from __future__ import annotations

import csv
import functools
import hashlib
import importlib
import os
import re
import sys
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, is_dataclass
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from golf.errors import GolfError, MissingError
from golf.paths import ROOT
from golf.registry import TECHNIQUE_TYPES, load_techniques_with

VARIABLE, PACKAGE = "GOLF_IDEAS", "ideas"  # the package that modules in folders belong to, as ideas.NAME.NAME
FOLDER, OWN = ROOT / PACKAGE, ROOT / "golf" / "training" / "techniques"
# Hashes of the code of the ideas that were techniques of golf, by name. While it is unchanged, it is left out of the
# ids of variants, which so stay those of before.
ONCE_BUILT_IN = dict(csv.reader(Path(__file__).with_name("once_built_in.csv").read_text(encoding="utf-8").splitlines()))
OTHERS = re.compile(r"^[ \t]*(?:from|import)\s+(?:ideas|\.)\.(\w+)", re.MULTILINE)  # ideas that a module imports from
FAULTY_VALUES: dict[str, str] = {}  # idea → sentence about its file of values


@dataclass(frozen=True)
class Idea:
    """A technique outside the package."""

    name: str
    folder: Path
    module: str  # to import, such as ideas.delta.delta or their_package.delta

    # Asked for every idea by every check of a setting.
    @functools.cached_property
    def file(self) -> Path:
        """The module that registers the technique."""
        return self.folder / f"{self.module.rpartition('.')[2]}.py"

    def code(self) -> dict[Path, list[Path]]:
        """Return the files of its code by folder: its own, and those of ideas from whose folders it imports.

        Files that the code names count, too. Its values are settings, and its test and page are no code.
        """
        files: dict[Path, list[Path]] = {}
        folders = [self.folder]
        # The list grows by the folders of the ideas that are imported.
        for folder in folders:
            inside = [path for path in sorted(folder.rglob("*")) if path.is_file()]
            modules = [p for p in inside if p.suffix == ".py" and not p.name.startswith(("test_", "conftest"))]
            text = b"".join(path.read_bytes() for path in modules)
            no_code = {".py", ".pyc", ".md"}
            named = [p for p in inside if p.suffix not in no_code and p.stem != folder.name and p.name.encode() in text]
            files[folder] = modules + named
            used = {ideas()[name].folder for name in OTHERS.findall(text.decode(errors="replace")) if name in ideas()}
            folders += sorted(used.difference(folders))
        return files

    def digest(self) -> str:
        """Return a hash of its code, twelve hex digits. Raises `GolfError` if a file of it cannot be read."""
        total = hashlib.sha256()
        try:
            for folder, files in self.code().items():
                for path in files:
                    total.update(f"{path.relative_to(folder)}\0".encode())
                    total.update(hashlib.sha256(path.read_bytes()).digest())
        except OSError as error:
            said = error.strerror or error
            raise GolfError(f"The idea {self.name} in {self.folder} cannot be read ({said}): put it back.") from error
        # A folder that is gone has no files.
        if not self.file.is_file():
            raise GolfError(f"The idea {self.name} is no longer in {self.folder}: put it back, or select another.")
        return total.hexdigest()[:12]


def use_ideas(folders: Iterable[str]) -> None:
    """Look into further folders, in this process and in those that it starts. Raises `GolfError` without an idea."""
    given = [str(Path(folder).expanduser().absolute()) for folder in folders]
    # Ranks and jobs are processes of their own, which inherit the variable.
    before = [folder for folder in os.environ.get(VARIABLE, "").split(os.pathsep) if folder]
    variable = os.pathsep.join(dict.fromkeys([*before, *given]))
    # A folder that is refused is not remembered.
    _ideas(variable)
    os.environ[VARIABLE] = variable
    load_techniques_with(load_ideas)


def ideas() -> dict[str, Idea]:
    """Return all ideas by name. Raises `GolfError` for a named folder without one, and for two of one name."""
    # A snapshot for jobs holds the ideas as they were when the jobs were sent.
    return _ideas("" if (ROOT / "snapshot.json").exists() else os.environ.get(VARIABLE, ""))


@functools.cache
def _ideas(variable: str) -> dict[str, Idea]:
    by_name: dict[str, Idea] = {}
    taken = {path.stem for path in OWN.glob("*.py")}
    listed = [_in_folder(Path(folder).expanduser()) for folder in variable.split(os.pathsep) if folder]
    own = [Idea(path.name, path, _module(path)) for path in sorted(FOLDER.glob("*/")) if _main(path).is_file()]
    for idea in [*own, *(idea for ideas in listed for idea in ideas), *_installed()]:
        if idea.name in taken:
            raise GolfError(f"The idea {idea.folder} is called like a technique of golf: rename the folder.")
        before = by_name.setdefault(idea.name, idea)
        if before.folder.resolve() != idea.folder.resolve():
            raise GolfError(f"Two ideas are called {idea.name}: {before.folder} and {idea.folder}. Rename one of them.")
    return by_name


def _in_folder(folder: Path) -> list[Idea]:
    """Return the idea that a folder is, or the ideas in it."""
    inside = [folder] if _main(folder).is_file() else [p for p in sorted(folder.glob("*/")) if _main(p).is_file()]
    # A folder that is to get its first idea has none yet.
    if not inside and not (folder.is_dir() and not any(folder.iterdir())):
        raise GolfError(f"{folder} has no idea: one is a folder NAME with the module NAME.py; golf idea new writes it.")
    if wrong := [path.name for path in inside if not path.name.isidentifier()]:
        raise GolfError(f"The idea {wrong[0]} cannot be imported: name its folder by letters, digits and underscores.")
    return [Idea(path.name, path.absolute(), _module(path)) for path in inside]


def _main(folder: Path) -> Path:
    return folder / f"{folder.name}.py"


def _module(folder: Path) -> str:
    return f"{PACKAGE}.{folder.name}.{folder.name}"


def _installed() -> list[Idea]:
    """Return the ideas that installed packages name, without importing them."""
    installed = []
    for entry in entry_points(group="golf.ideas"):
        # The parent package is imported by find_spec, the module itself is not.
        spec = find_spec(entry.module)
        if spec is None or spec.origin is None:
            raise GolfError(f"The idea {entry.name} of an installed package is missing: there is no {entry.module}.")
        installed.append(Idea(entry.name, Path(spec.origin).parent, entry.module))
    return installed


def load_ideas() -> None:
    """Import all ideas, so that their techniques are registered. A fault is named where its idea is selected."""
    for idea in ideas().values():
        fault(idea)


def fault(idea: Idea) -> str:
    """Import the module of an idea. Return a sentence if it cannot be imported or registers no such technique."""
    if idea.module.startswith(f"{PACKAGE}."):
        # An idea may import from the folder of any other.
        others = {
            f"{PACKAGE}.{i.name}": [str(i.folder)] for i in ideas().values() if i.module.startswith(f"{PACKAGE}.")
        }
        for name, places in {PACKAGE: [], **others, f"{PACKAGE}.{idea.name}": [str(idea.folder)]}.items():
            package = sys.modules.setdefault(name, ModuleType(name))
            package.__path__ = [*dict.fromkeys([*getattr(package, "__path__", []), *places])]
    try:
        importlib.import_module(idea.module)
    # A module may raise anything, and an exit would end golf without a word.
    except (Exception, SystemExit) as error:
        # The fault may stand below the technique, which must not run without what follows it.
        TECHNIQUE_TYPES.pop(idea.name, None)
        return f"The idea {idea.name} in {idea.file} cannot be imported ({type(error).__name__}: {error})."
    if not is_dataclass(TECHNIQUE_TYPES.get(idea.name)):
        TECHNIQUE_TYPES.pop(idea.name, None)
        how = f'put @technique("{idea.name}") and @dataclass above its class'
        return f"{idea.file} registers no technique {idea.name}: {how}."
    return FAULTY_VALUES.get(idea.name, "")


def refuse_missing(name: str, digest: str = "") -> None:
    """Raise `MissingError` for a technique of a file that is neither golf's nor an idea that is here."""
    if name in ideas():
        # The folder may have been named after the techniques were imported.
        if said := fault(ideas()[name]):
            raise MissingError(said)
        return
    code = f" with the code {digest}" if digest else ""
    raise MissingError(
        f"There is no technique {name} here. It is an idea{code}, or of another version: name the folder of the idea "
        f"by ideas=FOLDER or {VARIABLE}=FOLDER."
    )


def refuse_changed(digests: Mapping[str, str]) -> None:
    """Raise `GolfError` if the code of an idea is not the one of `digests`, which a configuration was written with."""
    for name, digest in digests.items():
        if name not in ideas():
            refuse_missing(name, digest)
        if (now := ideas()[name].digest()) != digest:
            raise GolfError(
                f"The idea {name} has changed since this run was configured (code {digest}, now {now} in "
                f"{ideas()[name].folder}): bring its code back, or repeat the run."
            )


def idea_of(kind: type) -> Idea | None:
    """Return the idea that a technique's class comes from, None for one of golf's own."""
    return next((idea for idea in ideas().values() if idea.module == kind.__module__), None)


def place_of(error: BaseException, names: Iterable[str]) -> str:
    """Return where `error` was raised: the innermost line of an idea, else of any file, beside the ideas among `names`.

    The text stands behind a message. It is empty without an idea.
    """
    selected = [ideas()[name] for name in names if name in ideas()]
    frames = traceback.extract_tb(error.__traceback__)[::-1]
    everywhere = ideas().values()
    inside = [(idea.name, f) for f in frames for idea in everywhere if Path(f.filename).is_relative_to(idea.folder)]
    if not frames or not (selected or inside):
        return ""
    idea, frame = inside[0] if inside else (", ".join(idea.name for idea in selected), frames[0])
    return f" ({Path(frame.filename).name}, line {frame.lineno}, with the idea {idea})"


def outside_folders(names: Iterable[str]) -> list[Path]:
    """Return the folders of the ideas among `names`, and of those they import, outside this checkout and packages."""
    selected = [ideas()[name] for name in names if name in ideas()]
    folders = [folder for idea in selected if idea.module.startswith(f"{PACKAGE}.") for folder in idea.code()]
    return [folder for folder in dict.fromkeys(folders) if folder.parent != FOLDER]


def file_of(module: str) -> Path | None:
    """Return the file of a module in an idea's folder or package, None for any other module."""
    for idea in ideas().values():
        package, _, _ = idea.module.rpartition(".")
        if module == idea.module:
            return idea.file
        if module.startswith(f"{package}."):
            path = idea.folder.joinpath(*module.removeprefix(f"{package}.").split("."))
            return path.with_suffix(".py") if path.with_suffix(".py").is_file() else path / "__init__.py"
    return None


def packages() -> set[str]:
    """Return the top-level names of the packages that ideas are in."""
    return {idea.module.partition(".")[0] for idea in ideas().values()}
