"""`golf idea new` and `golf idea check`, and ideas from outside the checkout on two ranks up to a submission."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from golf.commands import idea_check_command
from golf.commands.idea_new_command import TEMPLATES
from golf.lab.corpora.own_text import OwnDataset
from golf.lab.report.findings import judged
from golf.lab.report.study import read_study
from golf.lab.report.verdicts import NOT_SEPARABLE
from golf.settings.config import Config
from tests.ideas.conftest import OUTSIDE
from tests.support import ROOT, further, golf_command, golf_main, golf_train, tiny_overrides

KINDS = sorted(path.name for path in TEMPLATES.iterdir())
CHECKED, WALKED = ("mixer",), ("technique", "format")  # kinds whose check and whose walk to a verdict is a slow test

TEST = "def test_it() -> None:\n    assert 1 + 1 == 2\n"


def test_a_new_idea_has_its_four_files(forgotten: None, tmp_path: Path) -> None:
    for kind in KINDS:
        done = golf_command("idea", "new", kind, f"my_{kind}", "--folder", str(tmp_path))
        assert done.returncode == 0, done.stderr
        assert f"{tmp_path / f'my_{kind}' / 'README.md'} has the command that trains with it" in done.stdout
        assert f"GOLF_IDEAS={tmp_path} python golf/train.py " in (tmp_path / f"my_{kind}" / "README.md").read_text()
        names = {path.name for path in (tmp_path / f"my_{kind}").iterdir()}
        assert names == {f"my_{kind}.py", f"my_{kind}.yaml", f"test_my_{kind}.py", "README.md"}
        for path in (tmp_path / f"my_{kind}").iterdir():
            assert not [word for word in ("NAME", "CLASS", "WHERE") if word in path.read_text()], path


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("my-idea", "is no name of an idea: use small letters"),
        ("class", "is no name of an idea"),
        ("xsa", "There is a technique xsa already"),
    ],
)
def test_names_that_cannot_be_are_refused(name: str, said: str, forgotten: None, tmp_path: Path) -> None:
    done = golf_command("idea", "new", "technique", name, "--folder", str(tmp_path / "new"))
    assert done.returncode == 2 and said in done.stderr and not (tmp_path / "new").exists()


def test_nothing_is_written_over(forgotten: None, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "work.txt").write_text("kept")
    done = golf_command("idea", "new", "technique", "mine", "--folder", str(tmp_path))
    assert done.returncode == 2 and "exists already" in done.stderr
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["work.txt"]


def test_an_idea_without_a_test_is_not_checked_further(outside: Path) -> None:
    done = golf_command("idea", "check", str(outside / "random_map"))
    assert done.returncode == 1 and "FAILED  there is no test: write" in done.stdout


def test_a_path_with_dots_and_the_variable_name_one_idea(outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOLF_IDEAS", str(outside))
    done = golf_command("idea", "check", str(outside / ".." / outside.name / "random_map"))
    assert done.returncode == 1 and "FAILED  there is no test: write" in done.stdout
    (outside / "empty").mkdir()
    done = golf_command("idea", "check", str(outside / "empty"))
    assert done.returncode == 2 and "has no idea yet: golf idea new writes one" in done.stderr


def test_an_idea_may_import_from_the_folder_of_another(forgotten: None, tmp_path: Path) -> None:
    golf_command("idea", "new", "technique", "fresh", "--folder", str(tmp_path))
    module = tmp_path / "fresh" / "fresh.py"
    borrowed = "from ideas.leaky_relu.leaky_relu import LeakyReluSquared  # noqa: F401\n"
    module.write_text(module.read_text().replace("import torch\n", f"import torch\n{borrowed}", 1))
    (tmp_path / "fresh" / "test_fresh.py").unlink()
    # A process of its own, which has imported no idea yet.
    command = [sys.executable, "-m", "golf", "idea", "check", str(tmp_path / "fresh")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert "fresh.py registers the technique fresh" in done.stdout and "there is no test" in done.stdout, done.stdout


def test_a_check_of_nothing_asks_for_the_folder_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        idea_check_command.main([])
    assert "required: folder;" in capsys.readouterr().err


def test_a_failing_test_is_shown(outside: Path) -> None:
    (outside / "random_map" / "test_random_map.py").write_text(TEST.replace("== 2", "== 3"))
    done = golf_command("idea", "check", str(outside / "random_map"))
    assert done.returncode == 1 and "its test fails" in done.stdout and "assert (1 + 1) == 3" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind if kind in CHECKED else further(kind) for kind in KINDS])
def test_a_new_idea_passes_its_own_check(kind: str, forgotten: None, tmp_path: Path) -> None:
    golf_command("idea", "new", kind, "fresh", "--folder", str(tmp_path))
    done = golf_command("idea", "check", str(tmp_path / "fresh"))
    assert done.returncode == 0, done.stdout
    for line in ("its test: ", "is another variant", "on 2 ranks, every proof", "the same", "bytes of the wrapped"):
        assert line in done.stdout
    assert "ok      no token acts on an earlier one in rows of 4,096\n" in done.stdout
    assert re.search(
        r"ok      (no token acts on another document|documents: not tried, the idea refuses them)", done.stdout
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind if kind in WALKED else further(kind) for kind in KINDS])
def test_the_commands_of_a_template_end_in_a_verdict(
    kind: str, tiny: OwnDataset, forgotten: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOLF_RUNS", str(tmp_path / "runs"))
    golf_command("idea", "new", kind, "fresh", "--folder", str(tmp_path))
    (block,) = re.findall(r"```bash\n(.*?)```", (tmp_path / "fresh" / "README.md").read_text(), re.DOTALL)
    alone, sweep = (shlex.split(line) for line in block.splitlines())
    for given, where, *command in (alone, sweep):
        assert where == "python" and command.pop(0) == "golf/train.py"
        monkeypatch.setenv(*given.split("=", 1))
        few = ["sweep.max_seeds=2"] if "-m" in command else []
        done = golf_main(*command, *tiny_overrides(tiny), "data.train_seq_len=128", "schedule.iterations=3", *few)
        assert done.returncode == 0, done.stdout + done.stderr
    study = read_study([str(next((tmp_path / "runs" / "sweeps").iterdir()))])
    reference, idea = study.variants
    assert study.reference is not None and study.reference.id == reference.id, "the plain model is the reference"
    assert idea.label == ("quant.mlp.format=fresh" if kind == "format" else "with fresh")
    verdict = judged(study, Config().rules).verdicts[idea.id]
    assert not study.inseparable and verdict.kind != NOT_SEPARABLE and verdict.difference_bpb is not None, verdict


@pytest.mark.slow
def test_an_idea_without_effect_fails_its_check(forgotten: None, tmp_path: Path) -> None:
    golf_command("idea", "new", "technique", "inert", "--folder", str(tmp_path))
    module = tmp_path / "inert" / "inert.py"
    module.write_text(module.read_text().replace("+ self.slope * x", "+ 0 * self.slope * x"))
    (tmp_path / "inert" / "test_inert.py").write_text(TEST)
    done = golf_command("idea", "check", str(tmp_path / "inert"))
    assert done.returncode == 1 and "FAILED  the run is void" in done.stdout and "inert" in done.stdout


@pytest.mark.slow
def test_from_the_command_line_to_a_rehearsed_submission(
    tiny: OwnDataset, forgotten: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "anywhere"
    shutil.copytree(OUTSIDE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setenv("GOLF_RUNS", str(tmp_path / "runs"))
    chosen = ["tech=[random_map,delta_rule]", "tech.random_map.rank=16", "launch.nproc=2", "model.num_heads=2"]
    kept = [o for o in tiny_overrides(tiny) if not o.startswith(("model.compute_dtype", "optim.muon_dtype"))]
    bf16 = ["model.compute_dtype=bf16", "optim.muon_dtype=bf16"]
    done = golf_train(f"ideas={folder}", *kept, *bf16, *chosen)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (tmp_path / "runs").glob("*/seed*")
    assert set(json.loads((path / "config.json").read_text())["idea_code"]) == {"random_map", "delta_rule"}
    export = ["export", str(path), "--author", "A", "--github-id", "a", "--out", str(tmp_path / "sent")]
    # Without the folder the command says what is missing; nothing is written.
    exported = golf_command(*export)
    assert exported.returncode == 2 and "There is no technique" in exported.stderr and not (tmp_path / "sent").exists()
    monkeypatch.setenv("GOLF_IDEAS", str(folder))
    exported = golf_command(*export)
    assert exported.returncode == 0 and "bytes of artifact" in exported.stdout, exported.stderr
    assert "class MappedMLP(" in (tmp_path / "sent" / "train_gpt.py").read_text()
