"""A run that was cut short keeps its steps, seconds and last validation in its result, and in tables."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from torch._dynamo.exc import TorchDynamoException

from golf.bits import Score
from golf.lab.report.rows import row_of_result
from golf.launch.nodes import Nodes
from golf.launch.process import Interrupted
from golf.launch.torchrun import _outcome
from golf.launch.worker import failed
from golf.run.folder import create_run_folder
from golf.run.runlog import RunLog
from golf.run.summary import print_result
from golf.settings.config import Config


def cut_short(runs: Path, *, told: bool) -> tuple[Config, Path]:
    """Return a run folder as a process leaves it that was stopped (told) or killed after step 101 of 150."""
    cfg = Config()
    cfg.data.train_batch_tokens = 512
    folder = create_run_folder(cfg, [])
    log = RunLog(folder, cfg, is_first=True)
    for step in range(1, 102):
        log.train_step(step, step / 10, 4.5 if step % 10 == 0 else None, 1.0)
        if step == 100:
            log.validation(step, step / 10, Score(4.7653, 3.1929, 10, 20, 0.1))
    if told:
        log.cut_short()
    log.close()
    with folder.metrics.open("a") as file:
        file.write('{"event": "train", "st')  # a killed writer
    return cfg, folder.path


@pytest.mark.parametrize(("told", "steps"), [(True, 101), (False, 100)])
def test_what_was_reached_is_in_the_result(told: bool, steps: int, runs: Path, capsys: pytest.CaptureFixture) -> None:
    from golf.run.folder import RunFolder

    cfg, path = cut_short(runs, told=told)
    result = failed(cfg, RunFolder(path), Interrupted(2))
    assert (result.steps, result.tokens_seen, result.train_seconds) == (steps, steps * 512, steps / 10)
    assert (result.last_val_step, result.last_val_bpb, result.train_loss) == (100, 3.1929, 4.5)
    assert result.machine and result.step_ms == pytest.approx(100)
    assert result.pre_quant is None and result.final_score is None
    print_result(result, path)
    shown = capsys.readouterr().out
    assert f"{steps} steps" in shown and "3.1929 bits per byte at step 100" in shown
    row = row_of_result(dataclasses.asdict(result), path)
    assert row.reason == f"stopped by SIGINT at step {steps}; validation 3.1929 at step 100"


def test_a_run_that_never_stepped_reached_nothing(runs: Path) -> None:
    folder = create_run_folder(Config(), [])
    result = failed(Config(), folder, RuntimeError("x"))
    assert (result.steps, result.train_seconds, result.last_val_bpb) == (0, 0.0, None)


def test_a_failed_compilation_says_what_to_do_about_its_cache(runs: Path) -> None:
    folder = create_run_folder(Config(), [])
    result = failed(Config(), folder, TorchDynamoException("a wall of the compiler's lines"))
    assert result.reason.startswith("TorchDynamoException: compiling failed, see error.txt: TORCHINDUCTOR_CACHE_DIR=")
    assert "launch.compile=off" in result.reason and "a wall of the compiler's lines" in folder.error.read_text()


def test_a_rank_that_another_node_lost_is_no_message_of_the_network(runs: Path) -> None:
    folder, said = create_run_folder(Config(), []), "[pair.cc:553] Connection closed by peer [10.0.0.2]:5"
    folder.write_failure(failed(Config(), folder, RuntimeError(said)))
    for nodes, reason in ((Nodes(), said), (Nodes(0, 2), f"a rank of another node ended; see {folder.rank_logs}")):
        assert reason in _outcome(Config(), folder, nodes, RuntimeError("ended"), []).reason
