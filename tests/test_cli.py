"""The command `golf`: its list, its mistakes and its scripts."""

from __future__ import annotations

import errno
import importlib
import io
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from golf.challenge import SEEDS_WANTED
from golf.commands import cli, parsing
from golf.commands.idea_new_command import TEMPLATES
from golf.errors import GolfError
from golf.lab.corpora.own_text import OwnDataset
from golf.lab.report.texts import PUBLISHED_ON
from golf.lab.report.variants import SCORES
from golf.run.result import OK, read_result
from golf.tables import table_of
from tests.support import ROOT, golf_command, tiny_overrides

FOLDER = ROOT / "golf" / "commands"
# `golf bench` needs torch for its defaults.
HELPFUL = [command for command in cli.COMMANDS if command != "bench"]


@pytest.fixture(autouse=True)
def restored_argv(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command names itself in `sys.argv`."""
    monkeypatch.setattr(sys, "argv", ["golf"])


def test_every_file_of_commands_is_in_the_list_and_says_what_it_does() -> None:
    files = {f"golf.commands.{path.stem}" for path in FOLDER.glob("*_command.py")}
    assert files == {cli.module_of(command) for command in cli.COMMANDS}
    assert all(10 < len(cli.summary(command)) <= 63 for command in cli.COMMANDS)


def test_help_needs_no_torch_no_hydra_and_no_parser() -> None:
    code = "import sys; from golf.commands.cli import main; main(['--help']); main([]); main(['--version'])\n"
    code += "print({'torch', 'hydra', 'omegaconf', 'argparse', 'yaml', 'numpy'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.endswith("set()\n"), done.stdout + done.stderr
    for command in cli.COMMANDS:
        assert done.stdout.count(f"\n  {command:15} {cli.summary(command)}\n") == 2
    assert re.search(r"^golf \d+\.\d+\.\d+", done.stdout, re.M)


def test_every_command_explains_itself_without_torch() -> None:
    code = "import sys; from golf.commands.cli import main\n"
    code += f"for name in {HELPFUL!r}:\n"
    code += "    assert main([*name.split(), '--help']) == 0, name\n"
    code += "print('torch' in sys.modules, 'hydra' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.endswith("False False\n"), done.stdout[-500:] + done.stderr
    for command in set(HELPFUL) - {"train"}:  # whose help is that of golf/train.py
        assert f"usage: golf {command} " in done.stdout


def test_commands_that_read_stored_results_need_no_torch(tmp_path: Path) -> None:
    """`import torch` takes most of the time until a command answers."""
    code = "import sys; from golf.commands.cli import main; import golf.lab.report.board_server\n"
    code += "for line in ('status', 'status x', 'cancel x', 'report x', 'ledger', 'sync', 'import x'):\n"
    code += "    main(line.split())\n"
    code += "print('torch' in sys.modules)"
    env = os.environ | {"GOLF_RUNS": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=env)
    assert done.stdout.endswith("False\n"), done.stdout[-500:] + done.stderr


def test_choices_are_those_that_the_code_knows() -> None:
    options = table_of(parsing.__file__, "options.yaml")
    assert options["shared"]["--text"]["choices"] == list(PUBLISHED_ON)
    assert options["shared"]["--score"]["choices"] == list(SCORES)
    assert options["export"]["--track"]["choices"] == list(SEEDS_WANTED)
    assert options["idea new"]["kind"]["choices"] == sorted(path.name for path in TEMPLATES.iterdir())
    assert set(options) == {"shared", *cli.COMMANDS} - {"train", "bench"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["reprot"], "There is no command golf reprot; did you mean golf report?"),
        (["qqq"], "There is no command golf qqq; `golf --help` lists all."),
        (["data"], "golf data is followed by get or tokenize."),
        (["data", "gte"], "There is no command golf data gte; did you mean golf data get?"),
        (["report"], "Say what to report: a sweep ("),
        (["report", "lr", "--format", "xml"], "argument --format: invalid choice: 'xml'"),
        (["report", "lr", "--sigma", "-1"], "argument --sigma: -1 makes no sense here: give a number above 0;"),
        (["ledger", "--sigma", "nan"], "argument --sigma: nan makes no sense here: give a number above 0;"),
        (["report", "lr", "--against", "nan"], "argument --against: nan makes no sense here: give a number above 0;"),
        (["report", "lr", "--against", "0"], "argument --against: 0 makes no sense here"),
        (["report", "lr", "--against", "1.2", "--against-sigma", "-1"], "argument --against-sigma: -1 makes no sense"),
        (["report", "lr", "--against", "1.2", "--reference", "a"], "--reference and --against both name what to"),
        (["power", "--sigma", "0.001", "--difference", "0"], "argument --difference: 0 makes no sense here"),
        (["quant-gap", "run", "--tokens", "-5"], "argument --tokens: -5 makes no sense here: give 0 or more;"),
        (["report", "--referense", "x"], "unrecognized arguments: --referense; did you mean --reference?"),
        (["report", "lr", "--sigma", "wide"], "argument --sigma: invalid positive value: 'wide'"),
        (["submit", "--dry-run"], "the following arguments are required: overrides; see `golf submit --help`."),
        (["why", "model=9l"], "Name two things to compare"),
        (["power", "--sigma", "0.001", "--runs", "lr"], "--sigma and --runs are two sources of one number"),
    ],
    ids=lambda x: "+".join(x) if isinstance(x, list) else "",
)
def test_mistakes_end_in_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["golf", *arguments])
    assert cli.main() == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ") and sentence in printed.err and printed.err.count("\n") == 1


def test_train_and_bench_are_their_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from golf import train

    monkeypatch.setattr(train, "command_line", len)
    assert cli.main(["train", "-m", "seed=1,2"]) == 3 and sys.argv == ["golf train", "-m", "seed=1,2"]
    bench = importlib.import_module("golf.commands.bench_command")
    assert (bench.ROOT / "scripts" / "bench.py").is_file()
    monkeypatch.setattr(bench, "ROOT", tmp_path)
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "bench.py").write_text("import sys\ndef main(): return len(sys.argv)")
    assert cli.main(["bench", "--parts", "step"]) == 3


def raises(error: BaseException) -> object:
    def main(arguments: list[str]) -> int:
        raise error

    return main


def test_errors_and_interruptions_become_exit_statuses(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = importlib.import_module("golf.commands.ledger_command")
    private = PermissionError(errno.EACCES, "Permission denied", "train.log")
    for error, status in ((GolfError("Mend it."), 2), (private, 2), (KeyboardInterrupt(), 130)):
        monkeypatch.setattr(ledger, "main", raises(error))
        assert cli.main(["ledger"]) == status
    monkeypatch.setattr(ledger, "main", raises(RuntimeError()))
    with pytest.raises(RuntimeError):
        cli.main(["ledger"])


def test_ctrl_c_stays_an_interruption_whatever_error_it_becomes(monkeypatch: pytest.MonkeyPatch) -> None:
    def half_done(arguments: list[str]) -> int:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise ImportError("cannot load module more than once per process") from None
        return 0

    monkeypatch.setattr("golf.commands.plan_command.main", half_done)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert cli.main(["plan"]) == 130
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_reader_that_has_enough_is_no_error() -> None:
    for command in ("train", "power"):  # which print their help in two ways
        line = f"{sys.executable} -m golf.commands.cli {command} --help | true; echo ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, cwd=ROOT)
        assert done.stdout == "0\n" and done.stderr == ""


@pytest.mark.slow
def test_a_run_outlives_the_reader_of_its_output(tiny: OwnDataset, runs: Path) -> None:
    """Training that is piped into `head`, or into a `tee` that dies, goes on."""
    overrides = " ".join(shlex.quote(override) for override in tiny_overrides(tiny))
    line = f"{sys.executable} -m golf.commands.cli train {overrides} | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.splitlines()[-1] == "0" and done.stderr == "", done.stdout + done.stderr
    (result,) = runs.glob("4l*/seed*/result.json")
    assert read_result(result).state == OK


def test_closed_and_full_outputs_are_no_traceback() -> None:
    command = f"{sys.executable} -m golf.commands.cli power --sigma 0.0007 --difference 0.0014"
    for output, status in ((">&-", 0), ("> /dev/full", 2)):
        # Buffered, as without PYTHONUNBUFFERED: Python flushes once more at the end.
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
        done = subprocess.run(
            ["bash", "-c", f"{command} {output}"], capture_output=True, text=True, cwd=ROOT, env=environment
        )
        assert done.returncode == status and done.stderr.count("\n") <= 1, done.stderr
    assert done.stderr == "error: The output cannot be opened or written (No space left on device).\n"


@pytest.mark.parametrize("command", [["-m", "golf.commands.cli", "--help"], ["golf/train.py", "--help"]])
def test_a_terminal_without_utf8_gets_question_marks(command: list[str]) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "?" in done.stdout and not done.stderr


@pytest.mark.slow
def test_it_runs_as_a_module_from_any_folder(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GOLF_RUNS": str(tmp_path)}
    command = [
        sys.executable,
        "-m",
        "golf.commands.cli",
        "from-env",
        "MATRIX_LR=0.06 torchrun --nproc_per_node=8 train_gpt.py",
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0 and "optim.matrix_lr=0.06" in done.stdout, done.stderr


def test_output_to_a_closed_pipe_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with io.TextIOWrapper(os.fdopen(writing, "wb")) as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        assert cli.main(["--help"]) == 0


@pytest.mark.parametrize("command", [["golf/train.py", "seed=1"], ["-m", "golf.commands.cli", "plan"]])
def test_without_the_environment_the_way_to_it_is_named(command: list[str]) -> None:
    """-S leaves site-packages out, as a Python does that nothing was installed for."""
    done = subprocess.run([sys.executable, "-S", *command], capture_output=True, text=True, cwd=ROOT, env={})
    assert done.returncode and done.stderr.startswith("error: The package ") and done.stderr.count("\n") == 1
    assert "`make run` sets up everything" in done.stderr


def test_an_installation_without_the_repository_says_how_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("golf.commands.cli.ROOT", tmp_path)
    assert cli.main(["doctor"]) == 2
    assert f"{tmp_path} has no conf/: install golf by `pip install -e .` in a clone" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words, said",
    [
        ([], "golf COMMAND"),
        (["train"], "golf train"),
        (["data", "get"], "golf data get"),
        (["optim.matrix_lr"], "optim.matrix_lr="),
        (["weight", "decay"], "weight_decay"),
    ],
)
def test_help_answers_what_people_type(words: list[str], said: str) -> None:
    done = golf_command("help", *words)
    assert done.returncode == 0 and said in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_the_installed_command_submits_from_any_folder(tiny: OwnDataset, tmp_path: Path) -> None:
    """Hydra finds golf's plugins along the path, on which a process of pytest has the checkout."""
    command = [str(Path(sys.executable).parent / "golf"), "submit", "cluster=local", *tiny_overrides(tiny), "seed=1,2"]
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    variables["GOLF_RUNS"] = str(tmp_path)
    done = subprocess.run([*command, "--dry-run"], cwd=tmp_path, env=variables, capture_output=True, text=True)
    assert done.returncode == 0 and "2 to submit" in done.stdout, done.stdout + done.stderr


def test_submitting_without_slurm_is_one_sentence_and_leaves_no_sweep(
    tiny: OwnDataset, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    done = golf_command("submit", "cluster=slurm_cpu", *tiny_overrides(tiny), "seed=1,2")
    assert done.returncode == 2 and "--dry-run" in done.stderr and "cluster=local" in done.stderr
    assert len(done.stderr.splitlines()) == 1 and not list(runs.glob("sweeps/*"))
