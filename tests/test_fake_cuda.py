"""What a GPU run does, shown without a GPU: steps, scores and calibration on fake CUDA tensors at full width.

The tensors have devices, dtypes and shapes and no numbers. A mix of devices or dtypes fails as it would there.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.fake_cuda import build_guard
from tests.support import ROOT

EXPERIMENTS = ("naive_baseline", "fp16_embed_wd3600", "single_h100_8l", "gold6_11l", "pr593_11l")
STEPS = ["step:naive_baseline", "step:gold6_11l"]
RANKS = ["muon", "ddp", "documents", "join"]  # one of eight, under both forms of Muon, with packed documents
OTHER_STEPS = ["step:single_h100_8l", "step:pr593_11l"]  # fp16_embed_wd3600 has the baseline's shapes
SCORES = ["flat", "sliding", "sgd", "lora"]
FAULTS = ["wait", "pageable", "wide", "device", "dtype"]

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="the fake device is compiled by g++"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="the fake device would hide the GPU"),
]


@pytest.fixture(scope="session")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_guard(tmp_path_factory.mktemp("guard"), Path(torch.__file__).parent)


def dry_runs(guard: Path, cases: list[str]) -> dict[str, dict[str, Any]]:
    """Return what each case did, from a process in which torch has a CUDA device."""
    command = [sys.executable, "-W", "ignore", str(ROOT / "tests/fake_cuda/dry_run.py"), str(guard), *cases]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_a_step_and_a_score(guard: Path) -> None:
    found = dry_runs(guard, ["step:gold6_11l", "flat"])
    assert {case: done["error"] for case, done in found.items() if "error" in done} == {}
    step = found["step:gold6_11l"]
    assert step["operations"] > 1000 and (step["waits"], step["pageable"], step["wide"]) == ([], [], [])
    assert len(found["flat"]["waits"]) == 1 and found["flat"]["pageable"] == []


@pytest.mark.slow
def test_steps_scores_and_calibration(guard: Path) -> None:
    found = dry_runs(guard, [*STEPS, *RANKS, *SCORES, "calibration", "checkpoint"])
    errors = {case: done["error"] for case, done in found.items() if "error" in done}
    assert errors == {}
    for case in STEPS:
        assert found[case]["operations"] > 1000
        assert (found[case]["waits"], found[case]["pageable"], found[case]["wide"]) == ([], [], []), case
    for case in RANKS:
        assert [found[case][kind] for kind in ("waits", "pageable", "wide", "host")] == [[]] * 4, case
    for case in (*RANKS, "sgd"):
        assert found[case]["faults"] == [], case
        assert (found[case]["collectives"] > 0) == (case != "join"), case
    for case in SCORES:
        # The sum of a score is read once, at its end.
        assert len(found[case]["waits"]) == 1 and found[case]["waits"][0].startswith("tally.py"), case
        assert found[case]["pageable"] == found[case]["host"] == [], case
    assert found["calibration"]["host"] == []
    # Each copy of a checkpoint waits for the device.
    copies = found["checkpoint"]
    assert copies["host"] == [] and {w.partition(":")[0] for w in copies["waits"]} == {"checkpoint.py"}


@pytest.mark.slow
def test_planted_faults_are_noticed(guard: Path) -> None:
    """The fourteen of a review, nine of which this suite had missed, and 29 others; and none without a fault."""
    found = dry_runs(guard, [*RANKS, "loop", "stages", "flat", "lora", "sgd", "checkpoint", "faults"])
    noticed = {case: done for case, done in found.items() if case.startswith("fault:")}
    assert len(noticed) == 43
    assert {case: done for case, done in noticed.items() if not done["is_noticed"]} == {}
    # Twenty steps of `train()` with the loader of a GPU run: the host waits for the losses that are logged alone.
    # With a late switch and stages it reaches four kinds of pass, and the warm-up had each.
    for case in ("loop", "stages"):
        loop = found[case]
        assert [loop[kind] for kind in ("faults", "pageable", "wide", "host")] == [[]] * 4, loop
        assert loop["collectives"] >= 20 * 5


@pytest.mark.slow
def test_quantization_on_a_device_gives_what_the_cpu_gives(guard: Path) -> None:
    """All presets of conf/quant, with numbers, and every result has left the device."""
    command = [sys.executable, "-W", "ignore", str(ROOT / "tests/fake_cuda/device_quantize.py"), str(guard)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) >= 19 and {preset: said for preset, said in found.items() if said} == {}


@pytest.mark.slow
def test_steps_of_other_presets_and_all_at_record_size(guard: Path) -> None:
    found = dry_runs(guard, [*OTHER_STEPS, *(f"record:{experiment}" for experiment in EXPERIMENTS)])
    for case, done in found.items():
        assert "error" not in done, (case, done)
        assert (done["waits"], done["pageable"], done["wide"]) == ([], [], []), case


@pytest.mark.slow
def test_tuning_after_rounding(guard: Path) -> None:
    done = dry_runs(guard, ["tuning"])["tuning"]
    assert "error" not in done, done
    # The host waits for the mean loss on held-out text, and for the values that it keeps at the end.
    assert {line.partition(":")[0] for line in done["waits"]} == {"ranks.py", "tuning.py"}
    # The logits of the divergence are in float32 on purpose.
    assert done["wide"] and all("in gpt.py" in line for line in done["wide"]), done["wide"]


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason='needs Triton: pip install "golf[kernels]"')
def test_steps_with_the_kernels_in_triton(guard: Path) -> None:
    cases = ["kernels:naive_baseline", "kernels:pr593_11l"]  # ReLU², and LeakyReLU² with late switches
    for case, done in dry_runs(guard, cases).items():
        assert "error" not in done, (case, done)
        assert (done["waits"], done["pageable"], done["wide"]) == ([], [], []), case


@pytest.mark.slow
def test_faults_of_a_step_are_found(guard: Path) -> None:
    found = dry_runs(guard, [f"planted:{fault}" for fault in FAULTS])
    for kind in ("wait", "pageable", "wide"):
        seen = found[f"planted:{kind}"]
        assert [k for k in ("waits", "pageable", "wide") if seen[k]] == [{"wait": "waits"}.get(kind, kind)], seen
    assert "device" in found["planted:device"]["error"] and "bfloat16" in found["planted:dtype"]["error"]
