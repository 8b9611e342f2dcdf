"""Imports run one way: core, then products. The package does not grow unnoticed."""

import ast
import functools
import io
import os
import re
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

from tests.support import ROOT

# Lowest first: each imports itself and those before it. Programs that people start stand among the wings.
CORE = ["settings", "run", "artifact", "training", "launch"]
PRODUCTS = ["lab", "field", "submission", "commands"]
ORDER = [*CORE[:4], "train_gpt", "launch", *PRODUCTS[:3], "start", "train", "commands"]
ORDER += ["products", "__init__", "__main__"]
LAB = ["artifacts", "corpora", "proofs", "report", "plan", "track", "sweep", "cluster"]
# Every wing may import these.
GROUND = {"errors", "paths", "files", "bits", "challenge", "registry", "system", "words", "tables", "idea_folders"}
GROUND |= {"exits"}
# Lines of all programs without imports, docstrings, comments, blank lines and tests, and of YAML and CSV beside code.
# Who raises one of them says why in CHANGELOG.md.
MOST_LOGIC_LINES, MOST_TABLE_LINES = 33_681, 1_524
PROGRAMS = ("golf", "ideas", "bench", "scripts", "hydra_plugins")
NO_LOGIC = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
HYDRA_IS_KNOWN_TO = {"golf/train.py", "golf/settings/composition.py"}
WITHOUT_TORCH = [
    *("golf.bits", "golf.challenge", "golf.files", "golf.settings.composition", "golf.field.env_vars"),
    *("golf.run.folder", "golf.run.identity", "golf.run.result", "golf.run.locks", "golf.lab.report.difference"),
    *(
        "golf.run.curves",
        "golf.run.summary",
        "golf.lab.report.results",
        "golf.lab.report.ledger",
        "golf.lab.report.board_file",
    ),
    *("golf.field.folder_reader", "golf.field.import_store", "golf.field.import_tables"),
    *("golf.lab.sweep.jobs", "golf.lab.sweep.record"),
]


def modules() -> list[Path]:
    return sorted((ROOT / "golf").rglob("*.py"))


def logic_lines(source: str) -> int:
    """Return the lines of a source with a token that belongs to no import, docstring or comment."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = {n for t in tokens if t.type not in NO_LOGIC for n in range(t.start[0], t.end[0] + 1)}
    for node in ast.walk(ast.parse(source)):
        left_out: ast.stmt | None = node if isinstance(node, ast.Import | ast.ImportFrom) else None
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            left_out = node.body[0] if ast.get_docstring(node, clean=False) else None
        if left_out is not None:
            lines -= set(range(left_out.lineno, (left_out.end_lineno or 0) + 1))
    return len(lines)


@functools.cache
def imported(path: Path) -> set[str]:
    """Dotted names that the file imports at any depth, `from x import y` as `x`, and `from golf import y` as both."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    named = {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    of_golf = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module == "golf"]
    named |= {f"golf.{alias.name}" for node in of_golf for alias in node.names}
    return named | {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}


def allowed(room: str) -> set[str]:
    """Parts of the package that a wing, ground file or program may import."""
    return GROUND if room in GROUND else {*GROUND, *ORDER[: ORDER.index(room) + 1]}


def test_imports_run_one_way() -> None:
    wrong = []
    for path in modules():
        room = path.relative_to(ROOT / "golf").parts[0].removesuffix(".py")
        parts = {name.split(".")[1] for name in imported(path) if name.startswith("golf.")}
        wrong += [f"{path.relative_to(ROOT)} imports golf.{part}" for part in parts - allowed(room)]
    assert wrong == []


def test_rooms_of_the_lab_stand_in_order() -> None:
    wrong = []
    for place, room in enumerate(LAB):
        paths = (ROOT / "golf" / "lab" / room).rglob("*.py")
        found = {(path, name.split(".")[2]) for path in paths for name in imported(path) if "golf.lab." in name}
        wrong += [f"{path.relative_to(ROOT)} imports {above}" for path, above in found if above in LAB[place + 1 :]]
    assert wrong == []
    assert {path.name for path in (ROOT / "golf" / "lab").iterdir() if (path / "__init__.py").exists()} == set(LAB)


def test_logic_lines_are_those_a_reader_has_to_follow() -> None:
    lines = ['"""Text."""', "import os  # why", "", "def f(", "    x,", "):", '    """Text.', "", '    More."""']
    lines += ["    # Why.", '    return """a', 'b"""']
    assert logic_lines("\n".join(lines)) == 5


def test_programs_do_not_grow_unnoticed() -> None:
    paths = [path for top in PROGRAMS for path in (ROOT / top).rglob("*.py") if not path.name.startswith("test_")]
    lines = sum(logic_lines(path.read_text()) for path in paths)
    assert lines <= MOST_LOGIC_LINES, "take lines out, or raise the number and say in CHANGELOG.md what they are for"


def test_tables_beside_code_do_not_grow_unnoticed() -> None:
    paths = [path for ending in ("yaml", "csv") for path in (ROOT / "golf").rglob(f"*.{ending}")]
    assert sum(len(path.read_text().splitlines()) for path in paths) <= MOST_TABLE_LINES


def test_every_wing_says_what_it_is_for() -> None:
    folders = {path.name for path in (ROOT / "golf").iterdir() if (path / "__init__.py").exists()}
    assert folders == {*CORE, *PRODUCTS}
    assert all(ast.get_docstring(ast.parse((ROOT / "golf" / wing / "__init__.py").read_text())) for wing in folders)


def test_hydra_is_known_at_the_edge_only() -> None:
    known = {str(p.relative_to(ROOT)) for p in modules() if any(n.split(".")[0] == "hydra" for n in imported(p))}
    assert known == HYDRA_IS_KNOWN_TO
    typed = {str(p.relative_to(ROOT)) for p in modules() if any(n.split(".")[0] == "omegaconf" for n in imported(p))}
    assert typed == HYDRA_IS_KNOWN_TO


def test_tables_and_identity_import_without_torch() -> None:
    code = f"import sys; import {', '.join(WITHOUT_TORCH)}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "False", done.stderr


def test_ideas_do_not_import_the_compiler() -> None:
    """It takes 1.7 s, and every command that composes loads the ideas."""
    code = "import sys; from golf.idea_folders import load_ideas; load_ideas(); print('torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "False", done.stderr


def test_no_module_is_shadowed_by_a_script_of_the_package() -> None:
    """`python golf/train.py` puts golf/ first in the path; it must not hide a module that Python or torch needs."""
    names = {p.stem for p in (ROOT / "golf").glob("*.py")} | {p.name for p in (ROOT / "golf").iterdir() if p.is_dir()}
    assert not names & set(sys.stdlib_module_names)


@pytest.mark.parametrize("marker", ["slow", "slurm"])
def test_a_marked_suite_has_every_file_with_its_marker(marker: str) -> None:
    """The slow tests of ideas were once in no suite."""
    done = subprocess.run(["make", "-n", f"test-{marker}"], capture_output=True, text=True, cwd=ROOT, check=True)
    files = [path for top in ("tests", "ideas", "golf", "scripts") for path in (ROOT / top).rglob("test_*.py")]
    marked = {str(p.relative_to(ROOT)) for p in files if re.search(rf"mark\.{marker}\b", p.read_text())}
    assert marked and marked <= set(done.stdout.split())


@pytest.mark.parametrize(("environment", "python"), [("nowhere", "python3"), ("here", "here/bin/python")])
def test_the_suite_for_gpus_starts_without_pip(environment: str, python: str, tmp_path: Path) -> None:
    (tmp_path / "here/bin").mkdir(parents=True)
    (tmp_path / "here/bin/python").touch()
    given = [f"VENV={tmp_path / environment}", "PYTHON=python3"]
    # This suite itself may run under make, which then says where it goes and hands its settings on.
    apart = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "ARGS"))}
    done = subprocess.run(
        ["make", "-n", "test-gpu", *given], capture_output=True, text=True, cwd=ROOT, check=True, env=apart
    )
    assert done.stdout.removeprefix(f"{tmp_path}/") == f"{python} -m pytest -q -m gpu \n"
