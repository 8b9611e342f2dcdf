"""The code of a run: which files count, how an edit is named, and that no verdict is made of two codes."""

import ast
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from golf.errors import GolfError
from golf.files import read_json, write_json
from golf.lab.corpora.own_text import OwnDataset
from golf.lab.report.comparison import compare
from golf.lab.report.variants import Variant
from golf.lab.sweep.jobs import is_repeated, made_by_other_code
from golf.run import code
from golf.run.attempts import next_attempt
from golf.run.code import EARLIER, THEN, about_change, code_of_run, code_record, golf_files, note_edits, own_code
from golf.run.identity import variant_id
from golf.settings.config import Config
from golf.submission.runs import gather
from tests.lab.report.runs import variant, with_lr, write_run
from tests.support import ROOT, tiny_overrides


def imported_from(start: str) -> set[str]:
    """Return the files of golf that the module `start` imports, at any depth and inside functions, too."""
    found: set[str] = set()
    to_read = [start]
    while to_read:
        module = to_read.pop()
        places = [ROOT / f"{module.replace('.', '/')}{end}" for end in (".py", "/__init__.py")]
        path = next((p for p in places if p.is_file()), None)
        if path is None or str(path.relative_to(ROOT)) in found:
            continue
        found.add(str(path.relative_to(ROOT)))
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("golf"):
                to_read += [node.module, *(f"{node.module}.{name.name}" for name in node.names)]
            elif isinstance(node, ast.Import):
                to_read += [name.name for name in node.names if name.name.startswith("golf")]
    return found


def test_every_file_that_a_rank_can_load_counts() -> None:
    loaded = imported_from("golf.launch.worker") | imported_from("golf.launch.agent")
    assert len(loaded) > 100 and "golf/training/model/layers.py" in loaded
    assert loaded <= golf_files().keys()
    assert "golf/lab/report/table.py" not in golf_files() and "golf/settings/consistency.yaml" in golf_files()


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of three files, which is the code at hand."""
    for name in ("golf/training/a.py", "golf/settings/b.yaml", "golf/lab/report/c.py", "conf/d.yaml"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("first")
    monkeypatch.setattr(code, "ROOT", tmp_path)
    return tmp_path


def test_an_edit_is_named_by_its_file_until_it_is_taken_back(tree: Path) -> None:
    runs = tree / "multirun"
    first = code_record(runs)
    assert about_change(first["golf"], runs) == about_change("", runs) == ""
    kinds = {"golf/training/a.py": True, "golf/settings/b.yaml": True, "golf/lab/report/c.py": False}
    for name, changed in kinds.items():
        (tree / name).write_text("second")
        assert about_change(first["golf"], runs) == (f"other code: {name}" if changed else "")
        (tree / name).write_text("first")
    (tree / "golf/training/new.py").write_text("")
    (tree / "golf/training/a.py").unlink()
    assert about_change(first["golf"], runs) == "other code: golf/training/a.py, golf/training/new.py"
    assert about_change("0123456789ab", runs) == "other code: 0123456789ab", "its files were not copied with the run"
    assert about_change(EARLIER, runs).startswith("an earlier version")
    (tree / "conf/d.yaml").write_text("second")
    assert code_record(runs)["conf"] != first["conf"]


def test_a_run_that_other_code_resumes_is_of_both(tree: Path) -> None:
    runs = tree / "multirun"
    first = code_record(runs)["golf"]
    assert code_record(runs, first)["golf"] == first
    (tree / "golf/training/a.py").write_text("second")
    both = code_record(runs, first)["golf"]
    assert both == f"{first}{THEN}{own_code()}" and code_record(runs, both)["golf"] == both
    assert about_change(both, runs) == "other code: golf/training/a.py"
    (tree / "golf/training/a.py").write_text("first")
    assert code_record(runs, both)["golf"] == f"{both}{THEN}{first}"


def test_only_modules_that_were_loaded_behind_an_edit_make_a_run_one_of_two_codes(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tree / "multirun" / "x-01234567" / "seed1"
    record = code_record(tree / "multirun")
    write_json(folder / "environment.json", {"code": record})
    for name in ("a", "late"):
        (tree / f"golf/training/{name}.py").write_text("")
    monkeypatch.syspath_prepend(str(tree / "golf" / "training"))
    write_json(folder / "environment.json", {"code": code_record(tree / "multirun")})
    before = code_of_run(folder)
    __import__("a")
    loaded = set(sys.modules)
    (tree / "golf/training/a.py").write_text("x = 1")
    note_edits(folder, loaded)
    assert code_of_run(folder) == before, "what is loaded stays as it is"
    __import__("late")
    note_edits(folder, loaded)
    assert code_of_run(folder) == before, "this module was not edited"
    note_edits(folder, loaded - {"a"})
    assert code_of_run(folder) == f"{before}{THEN}{own_code()}"
    for name in ("a", "late"):
        del sys.modules[name]


def of_code(name: str, *digests: str) -> Variant:
    """Return a variant of four runs by the code `digests`, the last of which made all that are left."""
    codes = [*digests, *[digests[-1]] * (4 - len(digests))]
    rows = variant(name, [1.20, 1.21, 1.22, 1.23]).rows
    return Variant(name, name, tuple(replace(r, code_digest=c) for r, c in zip(rows, codes, strict=True)))


def test_no_verdict_is_made_of_two_codes() -> None:
    assert compare(of_code("a", "x"), of_code("b", "x")).p_below(0) < 1
    for mine, other in ((["x"], ["y"]), (["x", "y"], ["y"]), ([EARLIER], ["x"]), ([f"x{THEN}y"], [f"x{THEN}y"])):
        for pair in ((of_code("a", *mine), of_code("b", *other)), (of_code("a", *other), of_code("b", *mine))):
            with pytest.raises(GolfError, match=r"^the code that ran is .*: a difference may be the code's$"):
                compare(*pair)
    with pytest.raises(GolfError, match="x, y"):
        compare(of_code("a", "x", "y"), 1.2)
    assert compare(of_code("a", "x"), 1.2).df == 3


def test_finished_runs_of_other_code_are_named(runs: Path) -> None:
    known = code_record(runs)["golf"]
    edited = {**golf_files(), "golf/training/model/layers.py": "0"}
    write_json(runs / "code" / f"{code.digest_of(edited)}.json", edited)
    keys = []
    for seed, digest in enumerate((known, code.digest_of(edited), code.digest_of(edited), ""), start=1):
        write_run(runs, with_lr(0.02), 1.2, seed, code=digest)
        keys.append((variant_id(with_lr(0.02)), seed))
    assert made_by_other_code(keys) == [
        "2 finished before, by other code: golf/training/model/layers.py",
        "1 finished before, by an earlier version of golf, which noted no code",
    ]
    assert [is_repeated(key) for key in keys] == [True, False, False, False]
    with pytest.raises(GolfError, match="repeat the seeds, so that one code made all"):
        gather([runs])


def test_a_resumed_run_notes_both_codes(runs: Path) -> None:
    cfg = Config()
    folder, lock = next_attempt(cfg, [])
    lock.release()
    assert code_of_run(folder.path) == own_code() and (runs / "code" / f"{own_code()}.json").is_file()
    environment = read_json(folder.path / "environment.json")
    write_json(folder.path / "environment.json", {**environment, "code": {"golf": "0123456789ab"}})
    write_json(folder.checkpoint / "latest.json", {"step": 1, "ranks": 0})
    again, lock = next_attempt(cfg, [])
    lock.release()
    assert again.path == folder.path and code_of_run(folder.path) == f"0123456789ab{THEN}{own_code()}"


@pytest.mark.slow
def test_edits_of_three_files_between_commands_reach_no_verdict(tiny: OwnDataset, tmp_path: Path) -> None:
    """The whole way: a copy of the checkout, its code edited, edited again and brought back between two commands."""
    copy = tmp_path / "copy"
    for name in ("golf", "conf", "hydra_plugins"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)

    def sweep(*overrides: str) -> str:
        small = [*tiny_overrides(tiny), "schedule.warmup_steps=0", "eval.val_loss_every=0", "eval.val_at_start=false"]
        command = [sys.executable, "golf/train.py", *small, "-m", "optim.matrix_lr=0.04,0.02", *overrides]
        where = {"PYTHONPATH": str(copy), "GOLF_RUNS": str(tmp_path / "runs"), "PATH": "/usr/bin:/bin", "HOME": "/root"}
        done = subprocess.run(command, cwd=copy, capture_output=True, text=True, env=where)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def edit(name: str, before: str, after: str) -> None:
        text = (copy / name).read_text()
        assert before in text
        (copy / name).write_text(text.replace(before, after, 1))

    changes = (
        ("golf/artifact/container.py", '"""', '"""Edited. '),
        ("golf/settings/consistency.yaml", "\n", "\n\n"),
        ("golf/training/model/layers.py", "x.relu()", "(1.0 * x.relu())"),
    )
    assert "finished before" not in sweep("seed=1")
    for change in changes:
        edit(*change)
    said = sweep("seed=1,2")
    names = ", ".join(name for name, _, _ in changes)
    assert f"2 finished before, by other code: {names}; launch.fresh=true runs them again" in said
    assert "the code that ran is" in said and "│ better" not in said and "│ worse" not in said
    said = sweep("seed=1,2", "launch.fresh=true")
    assert "2 repeat finished runs of the same code" in said and "by other code" not in said
    assert "the code that ran is" not in said
    for name, before, after in changes:
        edit(name, after, before)
    assert f"2 finished before, by other code: {names}" in sweep("seed=1,2")
