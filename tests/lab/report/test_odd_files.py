"""One damaged, deep, endless, linked or odd file costs one row: never the page, the report or the ledger."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from golf.errors import GolfError
from golf.lab.report.board_file import single_file
from golf.lab.report.board_server import Board, as_json
from golf.lab.report.findings import judged
from golf.lab.report.study import read_study
from golf.settings.config import RulesConfig
from tests.lab.report.runs import with_lr, write_lr_sweep, write_run
from tests.odd_files import DEEP, FILES, SECRET, seconds
from tests.support import golf_command

SCORES = {0.06: [1.2440, 1.2447], 0.02: [1.2229, 1.2236]}
PLACES = ("result.json", "config.json", "environment.json", "metrics.jsonl", "note.txt", "output.log", "sweep.json")
VALUES: tuple[Any, ...] = (
    None,
    [],
    {},
    "x",
    "\ud800",
    -1,
    0,
    True,
    10**400,
    1e308,
    float("nan"),
    [[]],
    {"a": {"b": 1}},
    10**18,
)


@pytest.fixture
def study(runs: Path) -> Path:
    """Return a run folder among four of a sweep and one of its own, with every file that the board reads."""
    write_lr_sweep(runs, SCORES)
    write_run(runs, with_lr(0.5), 1.3)
    (runs.parent / "secret.json").write_text(json.dumps({"state": SECRET, "note": SECRET, "name": SECRET}))
    folder = sorted(runs.glob("*/seed1"))[0]
    environment = {
        "git": {"commit": "a" * 40, "dirty": True},
        "packages": {"torch": "2.13"},
        "command": ["golf", "train"],
    }
    (folder / "environment.json").write_text(
        json.dumps({"gpus": 8, "gpu": "H100", "cpu": "EPYC", "cpu_cores": 2, **environment})
    )
    (folder / "note.txt").write_text("a note")
    (folder / "output.log").write_text("step 1\n" * 9)
    return folder


def path_of(folder: Path, name: str) -> Path:
    return folder.parent.parent / "sweeps/lr/sweep.json" if name == "sweep.json" else folder / name


def answer(ask: Callable[[], Any]) -> Any:
    """Return what the server would send: an answer or the sentence of an error."""
    try:
        return json.loads(as_json(ask()))
    except GolfError as error:
        assert "\n" not in str(error)
        return str(error)


def check_board(folder: Path, board: Board | None = None) -> None:
    """Ask for everything that the page asks for. Twice, because the first answer is remembered."""
    root = folder.parent.parent
    id = f"{folder.parent.name}/{folder.name}"
    board = board or Board(root, RulesConfig())
    for _ in range(2):
        overview = answer(lambda: board.overview({}))
        ids = list(overview["runs"])
        other = next(name for name in ids if name != id)
        assert len(ids) == 5 and len(overview["sweeps"]) == 1, overview
        assert [overview["runs"][name]["state"] for name in ids if name != id] == ["ok"] * 4
        asked = [partial(board.run, {"run": [name]}) for name in ids]
        asked += [partial(board.sweep, {"name": ["lr"]}), partial(board.curves, {"run": ids})]
        asked.append(partial(board.why, {"one": [id], "other": [other]}))
        assert SECRET not in json.dumps([overview, *map(answer, asked)])


def check_commands(folder: Path, sweep_is_whole: bool) -> None:
    """Run what prints tables of the root: each ends by itself, with a table or one sentence."""
    root = folder.parent.parent
    for command in (
        ["report", "lr"],
        ["report", str(root)],
        ["ledger"],
        ["status"],
        ["status", "lr"],
        ["why", str(folder)],
    ):
        done = golf_command(*command)
        assert "Traceback" not in done.stderr and SECRET not in done.stdout, (command, done)
        if command != ["why", str(folder)] and (sweep_is_whole or command[-1] not in ("lr", "status")):
            assert done.returncode == 0 and done.stdout, (command, done)
    if sweep_is_whole:
        page = single_file(judged(read_study(["lr"]), RulesConfig()))
        assert SECRET not in page and len(page) > 100_000


def mutants(value: Any) -> Iterator[Any]:
    """Yield copies of a JSON value in which one part is another kind of value or is missing."""
    if isinstance(value, dict | list):
        for key, part in list(value.items() if isinstance(value, dict) else enumerate(value[:3])):
            for mutant in mutants(part):
                changed = copy.copy(value)
                changed[key] = mutant
                yield changed
            if isinstance(value, dict):
                yield {name: other for name, other in value.items() if name != key}
    yield from VALUES


WHOLE = [(place, kind) for place in PLACES for kind in FILES]
# A third of all pairs; every kind and every file is among them.
WHOLE = sorted(
    {
        *random.Random(6).sample(WHOLE, 50),
        *zip(PLACES * 4, FILES, strict=False),
        ("result.json", "brackets"),
        ("metrics.jsonl", "pipe"),
    }
)
SAMPLE = set(random.Random(1).sample(WHOLE, 8)) | {("result.json", "brackets"), ("metrics.jsonl", "pipe")}


@pytest.mark.parametrize(
    ("place", "kind"),
    [pytest.param(*case, marks=() if case in SAMPLE else pytest.mark.slow) for case in WHOLE],
)
def test_an_odd_file_costs_one_row(study: Path, place: str, kind: str) -> None:
    path = path_of(study, place)
    path.unlink(missing_ok=True)
    FILES[kind](path)
    with seconds(20):
        check_board(study)
        # They read by the same functions, so a third of the cases do.
        if WHOLE.index((place, kind)) % 3 == 0:
            check_commands(study, place != "sweep.json")


@pytest.mark.parametrize("place", [name for name in PLACES if name.endswith(".json")])
def test_an_odd_value_costs_one_row(study: Path, place: str) -> None:
    path = path_of(study, place)
    original = json.loads(path.read_text())
    found = list(mutants(original))
    for mutant in random.Random(2).sample(found, 6):
        path.write_text(json.dumps(mutant))
        with seconds(20):
            check_board(study)


@pytest.mark.slow
@pytest.mark.parametrize("place", [name for name in PLACES if name.endswith(".json")])
def test_every_odd_value_costs_one_row(study: Path, place: str) -> None:
    path = path_of(study, place)
    found = list(mutants(json.loads(path.read_text())))
    board = Board(study.parent.parent, RulesConfig())
    for number, mutant in enumerate(random.Random(3).sample(found, min(100, len(found)))):
        path.write_text(json.dumps(mutant))
        with seconds(20):
            check_board(study, board)
            if number % 10 == 0:
                check_commands(study, place != "sweep.json")


@pytest.mark.parametrize("number", range(3))
def test_odd_lines_of_metrics_cost_their_points(study: Path, number: int) -> None:
    events = [{"event": "train", "step": 1, "train_loss": 2.0}, {"event": "resumed", "step": 1}]
    events.append({"event": "switched_on", "name": "recurrence", "step": 3})
    lines = [json.dumps(mutant) for mutant in mutants(events[number])]
    lines += ["[" * DEEP, '{"event":' * 5000, '{"event": "train", "step": ' + "1" * 5000 + "}"]
    (study / "metrics.jsonl").write_text("\n".join([json.dumps(events[0]), *lines, json.dumps(events[0])]) + "\n")
    check_board(study)
