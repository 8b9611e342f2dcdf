"""A run whose training has ended is packed and scored by the same command, and never trained again."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from golf.lab.corpora.own_text import OwnDataset
from golf.run.trained import checksum
from tests.kills import VARIABLE, kill_at, startup_folder
from tests.launch.test_processes import wait_for
from tests.support import ROOT, further, golf_main, metrics, only_run, tiny_overrides

# Every write between the end of the training and the result, in order. After the first ones the training is repeated.
TRAINING = [
    *(f"trained.json {write} {when}" for write in ("fsync", "replace") for when in ("before", "after")),
    *("final_model fsync before", "final_model fsync after", "final_model replace before"),
]
TRAINED = ["final_model replace after", "seed fsync before", "seed fsync after"]
PACKING = [
    f"{file} {write} {when}"
    for file, name in (("artifact.golf", "replace"), ("trained.json", "replace"), ("result.json", "link"))
    for write in ("fsync", name)
    for when in ("before", "after")
]
LAST = PACKING[-1]  # nothing is left to do after it
GPTQ = ["quant.calibration.tokens=1024"]
CASES = {
    "int8, ema": ["tech=[ema]"],
    "gptq, swa": ["quant=gptq_int6", *GPTQ, "tech=[swa]", "tech.swa.every=1", "tech.swa.start=1"],
    "own text, lawa": ["quant=gptq_own_text", *GPTQ, "tech=[lawa]", "tech.lawa.every=2"],
    "tuned": ["quant=sdclip_lqer_asym", *GPTQ, "quant.tune.steps=3", "quant.tune.batch_tokens=512"],
    "trellis, late switch": [
        "quant=trellis_retrained",
        *GPTQ,
        "quant.retrain.steps=2",
        "tech=[recurrence]",
        "tech.recurrence.enable_at=0.5",
    ],
    "ternary, ttt": ["quant=ternary", "eval.ttt.method=sgd", "eval.stride=16", "eval.ttt.chunk_tokens=512"],
    "stages, free": ["tech=[schedule_free]", "data.loader=shuffled", "schedule.stages=[{until:0.5,seq_len:16},{}]"],
}
FP32, BF16 = (), ("model.compute_dtype=bf16", "optim.muon_dtype=bf16", "eval.dtype=bf16")
DTYPES = {"fp32": FP32, "bf16": BF16}


def outcome(folder: Path) -> dict[str, Any]:
    """Return all of a run that another start must not change."""
    result = json.loads((folder / "result.json").read_text())
    scores = [result[key] and result[key]["val_loss"] for key in result if key.startswith(("pre_quant", "post_quant"))]
    kept = ("state", "reason", "steps", "tokens_seen", "train_loss", "artifact_bytes", "quant_gap_bpb", "warnings")
    contents = [(folder / name).read_bytes() for name in ("final_model.safetensors", "artifact.golf")]
    return {key: result[key] for key in kept} | {"scores": scores, "hashes": list(map(checksum, contents))}


def fork(overrides: Sequence[str], moment: str) -> int:
    """Run golf/train.py in a copy of this process that dies at `moment`. Return its status as `wait` does."""
    if (pid := os.fork()) == 0:
        status = 99
        try:
            if moment:
                kill_at(moment)
            status = golf_main(*overrides).returncode
        finally:
            # Whatever was raised, this copy must not go on with the tests.
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def spawn(overrides: Sequence[str], moment: str, startup: Path) -> int:
    """Run golf/train.py in a new process, whose ranks die at `moment`."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(startup)}
    environment |= {VARIABLE: moment} if moment else {}
    command = [sys.executable, str(ROOT / "golf/train.py"), *overrides]
    done = subprocess.run(command, env=environment, capture_output=True, timeout=900)
    return done.returncode


def killed_in_turn(overrides: list[str], root: Path, moments: list[str], ranks: int = 1) -> None:
    """Kill a run at `moments` in turn, each start going on with what the last one left, and compare the outcome."""
    startup, patch = startup_folder(root / "startup"), pytest.MonkeyPatch()
    repeats = len(list(itertools.takewhile(TRAINING.__contains__, moments)))

    def start(folder: str, moment: str = "") -> int:
        patch.setenv("GOLF_RUNS", str(root / folder))
        return fork(overrides, moment) if ranks == 1 else spawn(overrides, moment, startup)

    with patch.context():
        assert start("undisturbed") in (0, 1)
        for moment in moments:
            assert start("killed", moment) == -signal.SIGKILL, moment
        if moments[-1] != LAST:
            assert start("killed") in (0, 1)
    (expected,) = (root / "undisturbed").glob("*/seed*")
    (ended,) = [path.parent for path in (root / "killed").glob("*/seed*/result.json")]
    assert outcome(ended) == outcome(expected)
    # As often as a kill came before the weights had their name, and once more.
    trained = [e for f in (root / "killed").glob("*/seed*") for e in metrics(f, "train") if e["step"] == 6]
    assert len(trained) == 1 + repeats


def test_a_run_killed_behind_its_training_is_packed_and_scored(tiny: OwnDataset, tmp_path: Path) -> None:
    overrides = [*tiny_overrides(tiny), *CASES["int8, ema"]]
    killed_in_turn(overrides, tmp_path, [TRAINED[0], "artifact.golf replace after"])


def cases_by_dtype() -> Iterator[Any]:
    for i, case in enumerate(CASES):
        for j, dtype in enumerate(DTYPES):
            yield pytest.param(case, dtype, marks=[pytest.mark.exhaustive] if (i + j) % 2 else [])


@pytest.mark.slow
@pytest.mark.parametrize(("case", "dtype"), list(cases_by_dtype()))
def test_every_moment(case: str, dtype: str, tiny: OwnDataset, tmp_path: Path) -> None:
    """The cases share the moments. The exhaustive ones are the same moments with the other dtype."""
    number = list(CASES).index(case)
    share = [TRAINING[number % len(TRAINING)], TRAINED[number % len(TRAINED)], *PACKING[number % 6 :: 6]]
    killed_in_turn([*tiny_overrides(tiny), *CASES[case], *DTYPES[dtype]], tmp_path, share)


TWO_RANKS = {
    "gptq, swa": FP32,
    "tuned": BF16,
    "ternary, ttt": FP32,
    "own text, lawa": BF16,
    "trellis, late switch": FP32,
}


@pytest.mark.slow
@pytest.mark.parametrize("case", ["gptq, swa", *(further(case) for case in TWO_RANKS if case != "gptq, swa")])
def test_every_moment_of_two_ranks(case: str, tiny: OwnDataset, tmp_path: Path) -> None:
    """Each case has a third of the moments; on disk those after an fsync and before a rename are the same."""
    distinct = [m for m in (*TRAINING, *TRAINED, *PACKING) if not m.endswith("fsync after") or m in TRAINED]
    distinct.remove("seed fsync before")
    share = distinct[list(TWO_RANKS).index(case) % 3 :: 3]
    killed_in_turn([*tiny_overrides(tiny), *CASES[case], *TWO_RANKS[case], "launch.nproc=2"], tmp_path, share, ranks=2)


STALE = {
    "WORLD_SIZE": "8",
    "RANK": "3",
    "LOCAL_RANK": "3",
    "MASTER_ADDR": "10.9.9.9",
    "MASTER_PORT": "1",
    "PET_NNODES": "4",
}


def test_rank_variables_left_in_a_shell_reach_no_rank(
    tiny: OwnDataset, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process, without matplotlib: the run ends ok, and its curves are left out with a sentence."""
    for name, value in STALE.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    done = golf_main(*tiny_overrides(tiny))
    assert done.returncode == 0, done.stderr
    assert "curves.png is left out" in done.stderr and not list(runs.glob("*/*/curves.png"))


@pytest.mark.slow
def test_one_layer_on_two_ranks_of_a_machine_without_a_name(tiny: OwnDataset, runs: Path) -> None:
    """The skips of one layer have no row and get no gradient; torchrun would look up the machine's name for minutes."""
    overrides = [*tiny_overrides(tiny), "model.num_layers=1", "launch.nproc=2"]
    inside = 'hostname gn017.cluster.invalid; ip link set lo up; exec "$@"'
    spaces = ["unshare", "--user", "--map-root-user", "--uts", "--net", "bash", "-c", inside, "bash"]
    if subprocess.run([*spaces, "true"], capture_output=True).returncode:
        pytest.skip("needs user namespaces")
    command = [*spaces, sys.executable, str(ROOT / "golf/train.py"), *overrides]
    done = subprocess.run(command, env={**os.environ, **STALE}, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr


UNUSED = """
from dataclasses import dataclass
import torch
from golf.training.techniques.base import Technique, technique

@technique("unused")
@dataclass
class Unused(Technique):
    \"\"\"A parameter that the loss does not depend on.\"\"\"

    groups = (("unused", "scalar"),)

    def edit_model(self, model, cfg):
        model.unused = torch.nn.Parameter(torch.ones(3))
"""


@pytest.mark.slow
@pytest.mark.usefixtures("forgotten")
def test_a_parameter_without_gradient_is_named_by_several_ranks(tiny: OwnDataset, runs: Path, tmp_path: Path) -> None:
    idea = tmp_path / "ideas/unused/unused.py"
    idea.parent.mkdir(parents=True)
    idea.write_text(UNUSED)
    assert golf_main(*tiny_overrides(tiny), f"ideas={idea.parents[1]}", "tech=[unused]", "launch.nproc=2").returncode
    reason = json.loads((only_run(runs) / "result.json").read_text())["reason"]
    assert reason.startswith("The loss does not depend on unused in the first steps"), reason


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_lost_terminal_interrupts_a_run(ranks: int, tiny: OwnDataset, runs: Path) -> None:
    overrides = [
        *tiny_overrides(tiny),
        "schedule.iterations=10000000",
        "eval.val_loss_every=0",
        f"launch.nproc={ranks}",
    ]
    pid, terminal = pty.fork()
    if pid == 0:
        # Under nohup the whole suite ignores it, and so would the run.
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        os.execv(sys.executable, [sys.executable, str(ROOT / "golf/train.py"), *overrides])
    log = threading.Thread(target=read_all, args=(terminal,), daemon=True)
    log.start()
    wait_for("training", lambda: any("step:3/" in p.read_text() for p in runs.glob("*/seed*/train.log")))
    # The shell passes the signal on, and then the kernel sends it.
    os.kill(pid, signal.SIGHUP)
    os.kill(pid, signal.SIGHUP)
    os.close(terminal)
    # And once more when the run has said how it ended, as a busy kernel does.
    wait_for("result", lambda: any(runs.glob("*/seed*/result.json")))
    os.kill(pid, signal.SIGHUP)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
    result = json.loads((only_run(runs) / "result.json").read_text())
    assert result["state"] == "interrupted" and result["steps"] >= 3 and "SIGHUP" in result["reason"]


def read_all(terminal: int) -> None:
    """Read what comes until the terminal is closed, as a terminal does."""
    with contextlib.suppress(OSError):
        while os.read(terminal, 4096):
            pass
