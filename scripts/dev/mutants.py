"""Mutation test: change one token of a file at random, and see whether a test of its own folder fails.

    pip install -e '.[dev,mutation]'
    python scripts/dev/mutants.py --count 200 --seed 1
    python scripts/dev/mutants.py --only golf/training/optim --count 20

The mutants are cosmic-ray's. They live in a copy of the checkout, beside which there is no ../shared. A mutant that
only changes an annotation, `frozen` or `strict` is none. Each is printed with its line; the exit code is 0 if 90 % of
them were noticed.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import hydra  # noqa: F401

# What all tests import is imported once, and inherited by the process of every mutant.
import hypothesis  # noqa: F401
import numpy  # noqa: F401
import omegaconf  # noqa: F401
import pytest
import safetensors.torch  # noqa: F401
import scipy.optimize
import scipy.stats  # noqa: F401
import sentencepiece  # noqa: F401
import torch
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

ROOT = Path(__file__).resolve().parents[2]
MUTATED = [
    "golf/training/optim",
    "golf/artifact/quant",
    "golf/training/scoring",
    "golf/training/model",
    "golf/training/data",
    "golf/training/loop/schedule.py",
    "golf/report/statistics.py",
    "golf/artifact/container.py",
]
COPIED = [
    "golf",
    "tests",
    "conf",
    "hydra_plugins",
    "scripts",
    "bench",
    "docs",
    "pyproject.toml",
    "README.md",
    "Makefile",
]
LEAST_KILLED = 0.9
LIMIT_SECONDS, LIMIT_RATIO = 60.0, 5.0
ALIVE, DEAD, TOO_LONG = "survived", "killed", "timed out"


@dataclass(frozen=True)
class Mutant:
    """A file with one token changed."""

    path: str
    operator: str
    occurrence: int
    line: int

    def code(self) -> str | None:
        """Return the mutated source, or None if nothing that runs has changed."""
        source = (ROOT / self.path).read_text()
        mutated = mutate_code(source, get_operator(self.operator)(), self.occurrence)
        return None if mutated is None or _what_runs(source) == _what_runs(mutated) else mutated

    def change(self, mutated: str) -> str:
        """Return the changed line before and after."""
        pairs = zip((ROOT / self.path).read_text().splitlines(), mutated.splitlines(), strict=False)
        before, after = next(((a, b) for a, b in pairs if a != b), ("", ""))
        return f"{self.path}:{self.line}\n    - {before.strip()}\n    + {after.strip()}"


def _what_runs(source: str) -> str | None:
    """Return the syntax tree without annotations, `frozen` and `strict`, as text; None for source that does not parse.

    Code without faults does not depend on either of the two.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            node.keywords = [keyword for keyword in node.keywords if keyword.arg not in ("frozen", "strict")]
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        if isinstance(node, ast.arg):
            node.annotation = None
        if isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
    return ast.dump(tree)


def mutants_of(path: str) -> dict[tuple[int, int], list[Mutant]]:
    """Return the mutants of a file by the line and column that they change."""
    found: dict[tuple[int, int], list[Mutant]] = defaultdict(list)
    nodes = list(ast_nodes(get_ast((ROOT / path).read_text())))
    for name in operator_names():
        # Mutants of variables need names, and `is` says the same as `==` of small integers and of None.
        if "Variable" in name or name.endswith(("_Is", "_IsNot")):
            continue
        operator = get_operator(name)()
        places = [place for node in nodes for place in operator.mutation_positions(node)]
        for occurrence, (start, _) in enumerate(places):
            found[start].append(Mutant(path, name, occurrence, start[0]))
    return found


def chosen(only: list[str], count: int, seed: int) -> list[Mutant]:
    """Return `count` mutants: places are drawn with equal chances, and one of the changes that are possible there."""
    generator = random.Random(seed)
    files = [
        f for part in only for f in ([ROOT / part] if part.endswith(".py") else sorted((ROOT / part).rglob("*.py")))
    ]
    places = [choices for f in files for choices in mutants_of(f.relative_to(ROOT).as_posix()).values()]
    generator.shuffle(places)
    mutants: list[Mutant] = []
    for choices in places:
        mutant = generator.choice(choices)
        if len(mutants) < count and mutant.code() is not None:
            mutants.append(mutant)
    return mutants


def tests_of(path: str) -> list[str]:
    """Return the test files of a file's own folder, those that are named after it first.

    A file that is mutated without its folder has only those that are named after it.
    """
    folder = Path("tests", *Path(path).parts[1:]).parent
    while not (files := sorted((ROOT / folder).glob("test_*.py"))):
        folder = folder.parent
    # The first failure ends a run of the tests, and these files are the likeliest to fail.
    files.sort(key=lambda file: Path(path).stem not in file.stem)
    if path in MUTATED:
        files = [file for file in files if Path(path).stem in file.stem]
    return [file.relative_to(ROOT).as_posix() for file in files]


def run_tests(copy: Path, tests: list[str], seconds: float) -> str:
    """Run tests in `copy` until one fails, in a process of their own that is stopped after `seconds`."""
    if (child := os.fork()) == 0:
        _be_pytest(copy, tests)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        finished, status = os.waitpid(child, os.WNOHANG)
        if finished:
            return ALIVE if os.waitstatus_to_exitcode(status) == 0 else DEAD
        time.sleep(0.05)
    # The child leads a group of its own (`os.setsid`), so processes that its tests started end with it.
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return TOO_LONG


def _be_pytest(copy: Path, tests: list[str]) -> None:
    os.setsid()
    os.chdir(copy)
    os.environ["PYTHONPATH"] = str(copy)
    sys.path.insert(0, str(copy))
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    status = pytest.main([*tests, "-xq", "-p", "no:xdist", "-p", "no:cacheprovider", "-m", "not slow and not gpu"])
    # An ordinary exit would run the exit handlers that were inherited from the parent.
    os._exit(int(status))


class Judge:
    """Runs the tests of mutants in a copy of the checkout, and those of the unchanged files first."""

    def __init__(self, copy: Path):
        self.copy = copy
        self._limits: dict[frozenset[str], float] = {}  # seconds, by tests

    def __call__(self, mutant: Mutant) -> str:
        """Return whether the tests of the mutant's folder notice it."""
        tests, mutated = tests_of(mutant.path), mutant.code()
        limit, file = self._limit(tests), self.copy / mutant.path
        assert mutated is not None
        original = file.read_text()
        file.write_text(mutated)
        try:
            verdict = run_tests(self.copy, tests, limit)
        finally:
            file.write_text(original)
        print(f"{verdict}: {mutant.change(mutated)}", flush=True)
        return verdict

    def _limit(self, tests: list[str]) -> float:
        """Return the seconds after which a mutant hangs. Without a mutant the tests have to pass."""
        if frozenset(tests) not in self._limits:
            start = time.monotonic()
            if run_tests(self.copy, tests, float("inf")) != ALIVE:
                sys.exit(f"These tests fail without a mutant: {' '.join(tests)}")
            self._limits[frozenset(tests)] = LIMIT_SECONDS + LIMIT_RATIO * (time.monotonic() - start)
        return self._limits[frozenset(tests)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="number of mutants (default: 200)")
    parser.add_argument("--seed", type=int, default=1, help="seed of their choice (default: 1)")
    parser.add_argument("--only", nargs="+", default=MUTATED, help="files and folders to mutate")
    args = parser.parse_args()
    torch.set_num_threads(1)
    # A stale .pyc of the same size and second would hide a mutant.
    sys.dont_write_bytecode = True
    os.environ |= {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "golf"
        copy.mkdir()
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, copy / name)
        judge = Judge(copy)
        verdicts = [judge(mutant) for mutant in chosen(args.only, args.count, args.seed)]
    dead = len(verdicts) - verdicts.count(ALIVE)
    print(f"{dead} of {len(verdicts)} mutants were noticed, {100 * dead / max(len(verdicts), 1):.0f} %")
    return 0 if dead >= LEAST_KILLED * len(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
