"""What only a GPU can show; skipped without one."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import golf
from golf.lab.corpora.own_text import OwnDataset
from golf.launch.launcher import train_and_score
from golf.run.result import INTERRUPTED, read_result
from golf.submission.rehearsal import _small, small_data, small_variables
from golf.training.loop.proving import UNPROVEN
from tests.support import ROOT, compose, golf_train, only_run, tiny_overrides

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

DEVICE = "cuda"
BF16 = ("model.compute_dtype=bf16", "optim.muon_dtype=bf16", "eval.dtype=bf16", "model.model_dim=64")
CONF = ROOT / "conf" / "experiment"
PRESETS = sorted(str(path.relative_to(CONF).with_suffix("")) for path in CONF.rglob("*.yaml"))
STEPS = 8


@pytest.mark.parametrize("mode", ["off", "blocks", "full"])
def test_main_job_on_a_gpu(mode: str, tiny: OwnDataset, runs: Path) -> None:
    done = golf_train(*tiny_overrides(tiny), f"launch.device={DEVICE}", *BF16, f"launch.compile={mode}")
    assert done.returncode == 0, done.stderr
    result = read_result(only_run(runs) / "result.json")
    assert result.state == "ok" and result.post_quant and result.post_quant.val_loss < 6.0


def test_gpu_and_cpu_agree(tiny: OwnDataset, runs: Path) -> None:
    for device in ("cpu", DEVICE):
        assert golf_train(*tiny_overrides(tiny), f"launch.device={device}").returncode == 0
    first, second = (read_result(p / "result.json") for p in sorted(runs.glob("*/seed*")))
    assert first.post_quant and second.post_quant
    assert first.post_quant.val_loss == pytest.approx(second.post_quant.val_loss, rel=5e-3)


def test_an_artifact_of_a_gpu_scores_alike_on_the_cpu(tiny: OwnDataset, runs: Path) -> None:
    overrides = [*tiny_overrides(tiny), *BF16[:2], "model.model_dim=64", "quant=gptq_int6"]
    assert golf_train(*overrides, f"launch.device={DEVICE}").returncode == 0
    folder = only_run(runs)
    scored = read_result(folder / "result.json").post_quant
    cfg = golf.compose([*overrides, "launch.device=cpu"])
    model = golf.build_model(cfg)
    model.load_state_dict(golf.load(folder / "artifact.golf").state_dict())
    found = golf.score(model, cfg)
    assert scored and found.val_loss == pytest.approx(scored.val_loss, rel=5e-3)


def test_a_late_switch_is_compiled_before_the_clock(tiny: OwnDataset, runs: Path) -> None:
    late = ["tech=[recurrence,untied_mlps,xsa,ema]", "tech.recurrence.enable_at=0.5", "schedule.iterations=8"]
    loop = ["tech.recurrence.first=1", "tech.recurrence.last=2", "launch.compile=full"]
    done = golf_train(*tiny_overrides(tiny), f"launch.device={DEVICE}", *BF16, *late, *loop)
    assert done.returncode == 0, done.stderr
    result = read_result(only_run(runs) / "result.json")
    assert result.state == "ok" and not [said for said in result.warnings if "recompiled" in said]


def test_a_run_that_is_stopped_goes_on(tiny: OwnDataset, runs: Path) -> None:
    endless = [*tiny_overrides(tiny), f"launch.device={DEVICE}", *BF16, "launch.checkpoint_seconds=0.1"]
    command = [sys.executable, "golf/train.py", *endless, "schedule.iterations=600", "eval.val_loss_every=0"]
    environment, nowhere = {**os.environ, "OMP_NUM_THREADS": "1"}, subprocess.DEVNULL
    first = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=nowhere, stderr=nowhere)
    while not any("step:100/" in path.read_text() for path in runs.glob("*/seed*/train.log")):
        assert first.poll() is None, "it ended before its step 100"
        time.sleep(0.1)
    first.send_signal(signal.SIGTERM)
    first.wait(60)
    assert read_result(only_run(runs) / "result.json").state == INTERRUPTED
    assert subprocess.run(command, cwd=ROOT, timeout=900).returncode == 0
    last = max(runs.glob("*/seed*/result.json"), key=lambda path: path.stat().st_mtime)
    assert read_result(last).steps == 600 and "resum" in (last.parent / "train.log").read_text()


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_trains_is_packed_and_scored(preset: str, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Proofs are the same on every device, and take longer than the training.
    monkeypatch.setenv("GOLF_PROOFS", "off")
    cfg = compose([f"experiment={preset}", "scale=single_gpu", f"launch.device={DEVICE}"])
    small = _small(cfg, small_variables(cfg, small_data(runs.parent / "text", cfg), STEPS))
    small.launch.device, small.model.attention = DEVICE, cfg.model.attention
    result, _ = train_and_score(small)
    assert result.reason == UNPROVEN and result.steps == STEPS and not result.warnings
    assert result.final_score is not None and math.isfinite(result.final_score.val_bpb)
