"""Imports run one way: a module may import only from its own layer's list."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT

GROUND = {"config", "consistency", "errors", "paths"}
MAY_IMPORT = {
    "errors": set(),
    "paths": set(),
    "config": {"errors"},
    "hardware": {"config", "paths"},
    "env_techniques": set(),
    "env_vars": {"errors", "env_techniques"},
    "consistency": {"config", "errors"},
    "dropping": {"config", "errors"},
    "ablation": {"config", "dropping", "errors"},
    "composition": GROUND | {"hardware", "dropping", "ablation"},
    "ranks": set(),
    "run": GROUND | {"hardware", "run", "scoring.bits"},
    "data": GROUND | {"data", "ranks", "run.files"},
    "model": GROUND | {"model"},
    "techniques": GROUND | {"techniques", "model", "quant"},
    "optim": GROUND | {"optim", "model"},
    "quant": GROUND | {"quant", "model.names"},
    "bundle": GROUND | {"bundle"},
    "artifact": GROUND | {"artifact", "quant", "bundle"},
    "scoring": GROUND | {"scoring", "ranks", "data", "model", "optim.adam"},
    "report": GROUND | {"report", "run", "dropping", "scoring.bits", "techniques.base"},
    "imports": {"errors", "imports", "run", "report", "scoring.bits"},
    "plan": GROUND | {"plan", "composition", "model", "quant", "artifact", "optim.groups", "loop.schedule", "run"},
    "track": GROUND | {"track", "run", "report", "imports"},
    "loop": GROUND
    | {
        "loop",
        "techniques",
        "model",
        "optim",
        "quant",
        "artifact",
        "data",
        "scoring",
        "ranks",
        "report",
        "run",
    },
    "train_gpt": GROUND
    | {
        *("artifact.container", "data", "loop", "model", "optim", "quant", "ranks", "report.trainlog"),
        *("scoring.bits", "scoring.scorer"),
    },
    "submission": GROUND
    | {"submission", "bundle", "data", "imports", "model", "report", "run", "scoring", "train_gpt"},
    "launch": GROUND | {"launch", "loop", "ranks", "run", "hardware", "data", "model", "artifact", "report", "track"},
    "sweep": GROUND | {"sweep", "run", "launch", "hardware", "track"},
    "worker": {"launch", "run"},
    "cluster": GROUND | {"cluster", "sweep", "run", "launch", "hardware", "plan"},
    "bench": GROUND
    | {
        *("bench", "composition", "hardware", "env_vars", "run", "launch", "loop", "plan", "scoring", "data", "model"),
        *("optim", "quant", "artifact", "ranks", "report"),
    },
    "usage": {"paths"},
    "why": {"composition", "config", "errors", "run"},
    "quant_table": {"composition", "config", "errors", "loop", "model", "run"},
    "train": {"composition", "errors", "launch", "plan", "quant_table", "report", "run", "sweep", "usage", "why"},
}
ONLY_AT_THE_EDGE = {"hydra": {"composition", "train"}, "omegaconf": {"composition", "train"}}


def golf_imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "golf":
            base = node.module.removeprefix("golf").removeprefix(".")
            found |= {base} if base else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name.removeprefix("golf.") for a in node.names if a.name.startswith("golf")}
    return found


def modules() -> list[Path]:
    return [p for p in sorted((ROOT / "golf").rglob("*.py")) if p != ROOT / "golf/__init__.py"]


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_run_one_way(path: Path) -> None:
    layer = path.relative_to(ROOT / "golf").parts[0].removesuffix(".py")
    allowed = MAY_IMPORT[layer]
    wrong = {m for m in golf_imports(path) if m.split(".")[0] not in allowed and m not in allowed}
    assert not wrong, f"{layer} must not import {', '.join(sorted(wrong))}"


def test_hydra_is_known_at_the_edge_only() -> None:
    for path in modules():
        layer = path.relative_to(ROOT / "golf").parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [a.name for a in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                edge = ONLY_AT_THE_EDGE.get(name.split(".")[0])
                assert edge is None or layer in edge, f"{path} imports {name}"


def test_tables_and_identity_import_without_torch() -> None:
    imports = [
        *("golf.run.folder", "golf.run.identity", "golf.run.result", "golf.report.summary", "golf.report.curves"),
        *("golf.composition", "golf.env_vars", "golf.scoring.bits", "golf.run.claims", "golf.run.difference"),
        *("golf.sweep.jobs", "golf.sweep.record", "golf.report.sweep", "golf.report.ledger", "golf.report.page"),
        *("golf.imports.collection", "golf.imports.store", "golf.imports.tables"),
    ]
    code = f"import sys; import {', '.join(imports)}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "False", done.stderr


def test_no_module_is_shadowed_by_a_script_of_the_package() -> None:
    """`python golf/train.py` puts golf/ first in the path; it must not hide a module that Python or torch needs."""
    names = {p.stem for p in (ROOT / "golf").glob("*.py")} | {p.name for p in (ROOT / "golf").iterdir() if p.is_dir()}
    assert not names & set(sys.stdlib_module_names)
