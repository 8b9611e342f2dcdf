"""Mutation test: change one token of a file at random, and see whether a test of its own folder fails.

    pip install -e '.[dev,mutation]'
    python scripts/dev/mutants.py --count 200 --seed 1
    python scripts/dev/mutants.py --only golf/training/optim --count 20

The mutants are cosmic-ray's. They live in a copy of the checkout, beside which there is no ../shared. Each runs the
tests that reach its line, the quickest first, in a fork of a process that has imported torch. Verdicts are kept in
`.mutants`, so that the same command goes on where it was stopped, and tries survivors again after a test has changed.

A mutant that only changes an annotation, `frozen` or `strict` is none. Those that no test could notice are listed in
equivalent_mutants.txt with the reason. The exit code is 0 if 90 % of the others were noticed.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Modules that many tests import are imported once, and inherited by the process of every mutant.
import hydra  # noqa: F401
import hypothesis  # noqa: F401
import matplotlib.pyplot  # noqa: F401
import numpy  # noqa: F401
import omegaconf  # noqa: F401
import pytest
import rich.live  # noqa: F401
import safetensors.torch  # noqa: F401
import scipy.optimize
import scipy.stats  # noqa: F401
import sentencepiece  # noqa: F401
import torch._dynamo

try:
    import coverage
    from cosmic_ray.ast import ast_nodes, get_ast
except ImportError as error:
    sys.exit(f"error: mutants need {error.name}, which is not installed: pip install -e '.[mutation]'")
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / ".mutants"
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.txt")
MUTATED = [
    "golf/training/optim",
    "golf/artifact/quant",
    "golf/training/scoring",
    "golf/training/model",
    "golf/training/data",
    "golf/training/loop/schedule.py",
    "golf/lab/report/statistics.py",
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
# CPU time does not depend on what else the machine does. Seconds of the clock end a mutant that waits for ever.
LIMIT_CPU_SECONDS, LIMIT_RATIO, LIMIT_SECONDS = 20.0, 4.0, 600.0
PYTEST = ["-xq", "-p", "no:xdist", "-p", "no:cacheprovider", "-m", "not slow and not gpu and not slurm"]
ALIVE, DEAD, TOO_LONG, EQUAL = "survived", "killed", "timed out", "equivalent"


@dataclass(frozen=True)
class Mutant:
    """A file with one token changed."""

    path: str
    operator: str
    occurrence: int
    line: int

    def source(self) -> str:
        """Return the file without the change."""
        return (ROOT / self.path).read_text(encoding="utf-8")

    def code(self) -> str | None:
        """Return the mutated source, or None if it does not run or nothing that runs has changed."""
        mutated = mutate_code(self.source(), get_operator(self.operator)(), self.occurrence)
        changed = None if mutated is None else _what_runs(mutated)
        # Some of cosmic-ray's mutants are no Python: it takes the star of a signature for a product.
        return None if changed in (None, _what_runs(self.source())) else mutated

    def change(self, mutated: str) -> str:
        """Return the path, the changed line before and the line after, as equivalent_mutants.txt has them."""
        before, after = self.source().splitlines(), mutated.splitlines()
        # Decorators are taken out with their line.
        now = after[self.line - 1] if len(before) == len(after) else ""
        return f"{self.path}\n- {before[self.line - 1].strip()}\n+ {now.strip()}".rstrip()


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
    nodes = list(ast_nodes(get_ast((ROOT / path).read_text(encoding="utf-8"))))
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
    """Return `count` mutants: places are drawn with equal chances, and one of the changes that are possible there.

    The draw is by digests of lines, so that a change elsewhere leaves most of it as it was.
    """
    files = [
        f for part in only for f in ([ROOT / part] if part.endswith(".py") else sorted((ROOT / part).rglob("*.py")))
    ]
    places: list[tuple[str, list[Mutant]]] = []
    for file in files:
        path, lines = file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8").splitlines()
        for (line, column), choices in mutants_of(path).items():
            before = "\n".join(lines[:line]).count(lines[line - 1])
            places.append((_digest(seed, path, lines[line - 1], before, column), choices))
    mutants: list[Mutant] = []
    for draw, choices in sorted(places, key=lambda place: place[0]):
        mutant = random.Random(draw).choice(choices)
        if len(mutants) < count and mutant.code() is not None:
            mutants.append(mutant)
    return mutants


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def tests_of(path: str) -> list[str]:
    """Return the test files of a file's own folder.

    A file that is mutated without its folder has only those that are named after it.
    """
    folder = Path("tests", *Path(path).parts[1:]).parent
    while not (files := sorted((ROOT / folder).glob("test_*.py"))):
        folder = folder.parent
    if path in MUTATED:
        files = [file for file in files if Path(path).stem in file.stem]
    return [file.relative_to(ROOT).as_posix() for file in files]


@dataclass
class Reached:
    """Code that the tests of a folder reach: the lines by test and by fixture, and seconds and fixtures by test."""

    lines: dict[str, dict[str, list[int]]]  # lines by path and by the name of a test or fixture
    fixtures: dict[str, list[str]]
    seconds: dict[str, float]  # CPU time

    def by(self, path: str, line: int) -> list[str]:
        """Return the tests that run the statement of a line, the quickest first.

        Statements that run while the tests are imported may matter to every test that runs something of the file.
        """
        statement = _statement((ROOT / path).read_text(encoding="utf-8"), line)
        runs = self.lines.get(path, {})
        names = {name for name, lines in runs.items() if statement.intersection(lines)}
        if "" in names:
            names = set(runs)
        tests = [test for test in self.seconds if names.intersection([test, *self.fixtures[test]])]
        # Code that no test reaches may run in a process that a test starts.
        tests = tests or list(self.seconds)
        return sorted(tests, key=lambda test: self.seconds[test])


def _statement(source: str, line: int) -> set[int]:
    """Return the lines of the innermost statement at a line, those of its head alone if it has a body."""
    found = {line}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt | ast.ExceptHandler):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
            if node.lineno <= line <= max(last, node.lineno):
                found = set(range(node.lineno, max(last, node.lineno) + 1))
    return found


class Recorder:
    """A plugin of pytest that notes which test or fixture runs, and for how many seconds of CPU time."""

    def __init__(self, measured: coverage.Coverage):
        self.measured, self.reached = measured, Reached({}, {}, {})

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
        start = time.process_time()
        self.test, self.reached.fixtures[item.nodeid] = item.nodeid, [f"fixture {f}" for f in item.fixturenames]
        self.measured.switch_context(item.nodeid)
        result = yield
        self.reached.seconds[item.nodeid] = time.process_time() - start
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        self.measured.switch_context(f"fixture {fixturedef.argname}")
        result = yield
        # The fixture of a fixture is named among those of the test, so it does not matter which of them goes on.
        self.measured.switch_context(self.test)
        return result


class Selection:
    """A plugin of pytest that keeps some tests, in their order."""

    def __init__(self, tests: list[str]):
        self.tests = tests

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        by_name = {item.nodeid: item for item in items}
        items[:] = [by_name[test] for test in self.tests]


def forked(copy: Path, work: Callable[[], int], cpu_seconds: float | None = None) -> str:
    """Call `work` in a process of its own in the folder `copy`, and say how it ended."""
    if (child := os.fork()) == 0:
        # An ordinary exit would run the exit handlers that were inherited from the parent.
        status = 1
        try:
            _enter(copy, cpu_seconds)
            status = int(work())
        finally:
            os._exit(status)
    end = time.monotonic() + (LIMIT_SECONDS if cpu_seconds else float("inf"))
    try:
        while time.monotonic() < end:
            finished, status = os.waitpid(child, os.WNOHANG)
            if finished:
                code = os.waitstatus_to_exitcode(status)
                return TOO_LONG if code == -signal.SIGXCPU else DEAD if code else ALIVE
            time.sleep(0.02)
        return TOO_LONG
    finally:
        # The child leads a group of its own, so processes that its tests started end with it.
        try:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
        except (ProcessLookupError, ChildProcessError):
            pass


def _enter(copy: Path, cpu_seconds: float | None) -> None:
    os.setsid()
    os.chdir(copy)
    os.environ["PYTHONPATH"] = str(copy)
    sys.path.insert(0, str(copy))
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    if cpu_seconds is not None:
        # The compiled files of the unchanged sources are read, and none of a mutant is left behind.
        sys.dont_write_bytecode = True
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        seconds = int(time.process_time() + cpu_seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 10))


class Judge:
    """Runs the tests of mutants in a copy of the checkout, and those of the unchanged files first."""

    def __init__(self, copy: Path):
        self.copy = copy
        self.equivalent = {
            part.rpartition("\n")[0] for part in EQUIVALENT.read_text(encoding="utf-8").strip().split("\n\n")
        }
        self.verdicts: dict[str, str] = {}
        KEPT.mkdir(exist_ok=True)
        if (KEPT / "verdicts.jsonl").exists():
            for line in (KEPT / "verdicts.jsonl").read_text(encoding="utf-8").splitlines():
                self.verdicts |= json.loads(line)

    def __call__(self, mutant: Mutant) -> str:
        """Return whether the tests of the mutant's folder notice it."""
        mutated = mutant.code()
        assert mutated is not None
        change = mutant.change(mutated)
        # A survivor is tried again if the tests of its folder have changed, for then the second key is new.
        dead, alive = _digest(mutated), _digest(mutated, self._digest_of(tests_of(mutant.path)))
        verdict = EQUAL if change in self.equivalent else self.verdicts.get(dead) or self.verdicts.get(alive)
        if verdict is None:
            verdict = self._try(mutant, mutated)
            with (KEPT / "verdicts.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps({alive if verdict == ALIVE else dead: verdict}) + "\n")
        path, lines = change.split("\n", 1)
        print(f"{verdict}: {path}:{mutant.line}\n{lines}", flush=True)
        return verdict

    def _try(self, mutant: Mutant, mutated: str) -> str:
        reached = self._reached(tests_of(mutant.path))
        tests = reached.by(mutant.path, mutant.line)
        file = self.copy / mutant.path
        files = sorted({test.partition("::")[0] for test in tests})
        limit = LIMIT_CPU_SECONDS + LIMIT_RATIO * sum(reached.seconds[test] for test in tests)
        original, times = file.read_text(encoding="utf-8"), file.stat()
        try:
            file.write_text(mutated, encoding="utf-8")
            # Compiled files are known by this time, which must not be that of the unchanged source.
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns + 10**10))
            return forked(self.copy, lambda: pytest.main([*files, *PYTEST], [Selection(tests)]), limit)
        finally:
            file.write_text(original, encoding="utf-8")
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))

    def _digest_of(self, tests: list[str]) -> str:
        return _digest([(self.copy / test).read_text(encoding="utf-8") for test in tests])

    def _reached(self, tests: list[str]) -> Reached:
        """Return what tests reach, measured once for each state of the tests and of what they test."""
        sources = [
            file.read_text(encoding="utf-8") for part in MUTATED for file in sorted(self.copy.glob(f"{part}/**/*.py"))
        ]
        kept = KEPT / f"{_digest(self._digest_of(tests), sources)[:16]}.json"
        if not kept.exists() and forked(self.copy, lambda: record(self.copy, tests, kept)) != ALIVE:
            sys.exit(f"These tests fail without a mutant: {' '.join(tests)}")
        return Reached(**json.loads(kept.read_text(encoding="utf-8")))


def record(copy: Path, tests: list[str], kept: Path) -> int:
    """Run tests, write what they reach to `kept`, and return the exit code of pytest."""
    patterns = (str(copy / part) if part.endswith(".py") else f"{copy / part}/**" for part in MUTATED)
    measured = coverage.Coverage(data_file=None, config_file=False, include=list(patterns))
    measured.start()
    recorder = Recorder(measured)
    status = pytest.main([*tests, *PYTEST], [recorder])
    measured.stop()
    for file in measured.get_data().measured_files():
        by_name: dict[str, list[int]] = defaultdict(list)
        for line, names in measured.get_data().contexts_by_lineno(file).items():
            for name in names:
                by_name[name].append(line)
        recorder.reached.lines[Path(file).relative_to(copy).as_posix()] = by_name
    kept.write_text(json.dumps(vars(recorder.reached)), encoding="utf-8")
    return status


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="number of mutants (default: 200)")
    parser.add_argument("--seed", type=int, default=1, help="seed of their choice (default: 1)")
    parser.add_argument("--only", nargs="+", default=MUTATED, help="files and folders to mutate")
    args = parser.parse_args()
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
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
    equal = verdicts.count(EQUAL)
    real = len(verdicts) - equal
    dead = real - verdicts.count(ALIVE)
    print(f"{dead} of {real} mutants were noticed, {100 * dead / max(real, 1):.0f} %; {equal} more are equivalent")
    return 0 if dead >= LEAST_KILLED * real else 1


if __name__ == "__main__":
    sys.exit(main())
