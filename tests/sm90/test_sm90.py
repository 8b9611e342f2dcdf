"""Code for an H100, made without one: the compiled step of two layers, and the kernels in Triton."""

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

FOLDER = Path(__file__).parent
SHARED_BYTES = 232_448  # shared memory that a program may have on an H100
# Launches for a micro-batch of two layers, forward and backward: kernels in Triton, then matrix products. Torch 2.13
# hands Inductor a norm as mean, power and root, earlier ones as one operation; backward the parts take a launch more.
SPLIT_NORMS = int(torch.__version__ >= "2.13")
LAUNCHES = {"triton": (26, 38 + SPLIT_NORMS), "products": (13, 26)}
FUSED_LAUNCHES = {"triton": (23, 36 + SPLIT_NORMS), "products": (9, 24)}  # with the kernels for loss and MLPs
SWITCHED = "tech=[recurrence,soft_round] tech.recurrence.first=1 tech.recurrence.last=1 model.num_layers=3"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason='needs Triton: pip install "golf[kernels]"'),
]


def lines_of(tmp_path: Path, script: str, *arguments: str) -> list[dict[str, Any]]:
    """Run a script of this folder with caches of its own, and return the lines of JSON that it prints."""
    caches = {"TRITON_CACHE_DIR": str(tmp_path / "triton"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor")}
    environment = {**os.environ, **caches, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", str(FOLDER / script), *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("g++") is None or torch.cuda.is_available():
        pytest.skip("the fake device needs g++, and would hide a GPU")
    return build_guard(tmp_path_factory.mktemp("guard"), Path(torch.__file__).parent)


def counted(launches: list[dict[str, int]]) -> dict[str, tuple[int, ...]]:
    """Return the launches of each graph by kind."""
    products = ("extern_kernels.mm", "extern_kernels.addmm")
    return {
        "triton": tuple(counts["triton"] for counts in launches),
        "products": tuple(sum(counts.get(name, 0) for name in products) for counts in launches),
    }


def assert_one_graph(found: dict[str, Any]) -> None:
    """One graph in either direction, without a break, and in it nothing that is computed too often or too wide."""
    assert (found["dynamo_graphs"], found["graphs"], found["breaks"]) == (1, 2, {})
    # Rotary tables are inputs of the graph: computed in it, every element would cost a power, a sine and a cosine.
    assert found["transcendental"] == []
    # Logits are float32 within kernels only: in memory they would be as large as all activations of a layer.
    assert found["wide"] == [0, 0]
    calls = [name for counts in found["launches"] for name in counts]
    assert sum("flash_attention" in name for name in calls) == 2  # one call a layer, forward and backward


def test_a_compiled_step_is_one_graph_of_few_launches_that_becomes_machine_code(guard: Path, tmp_path: Path) -> None:
    # One process for all four, because the compiler alone takes seconds to import.
    cases = [f"{kind}:experiment=naive_baseline" for kind in ("cubins", "kernels", "planted", "bytes")]
    plain, fused, faulty, told = lines_of(tmp_path, "compiled_step.py", str(guard), *cases)
    assert_one_graph(plain)
    assert counted(plain["launches"]) == LAUNCHES
    assert len(plain["cubins"]) == plain["kernels"] > 20 and min(plain["cubins"]) > 1000
    # The kernels for loss and MLPs take the place of others.
    assert_one_graph(fused)
    forward, backward = fused["launches"]
    assert forward["torch.ops.golf.squared_mlp.default"] == 2
    assert forward["torch.ops.golf.softcapped_losses.default"] == 1
    assert backward["torch.ops.golf.squared_mlp_gradient.default"] == 2
    assert backward["torch.ops.golf.softcapped_gradient.default"] == 1
    assert counted(fused["launches"]) == FUSED_LAUNCHES
    # Asked for, the compiler writes into each kernel of its own what it moves, and launches no others.
    assert len(told["gigabytes"]) == told["kernels"] and told["launches"] == plain["launches"]
    assert plain["gigabytes"] == {}
    # ReLU² reads and writes 65,536 × 1,024 numbers in bf16.
    (squares,) = (gb for name, gb in told["gigabytes"].items() if "_pow_relu_" in name and "backward" not in name)
    assert squares == pytest.approx(65_536 * 1024 * 2 * 2 / 1e9)
    # Tables and wide logits that are planted in a graph are found.
    assert faulty["transcendental"] != [] and min(faulty["wide"]) > 0


def test_attention_within_documents_is_one_graph_with_a_table_made_by_short_scans(guard: Path, tmp_path: Path) -> None:
    """Torch's kernel takes the row, and no mask of it is in the graph; a scan of the whole row would be one block."""
    documents = "model.within_documents=true eval.documents=true data.loader=packed model.attention=varlen"
    rows = "data.train_batch_tokens=32768 data.micro_batches=1 data.train_seq_len=2048"
    (found,) = lines_of(tmp_path, "compiled_step.py", str(guard), f"code:experiment=naive_baseline {documents} {rows}")
    assert (found["dynamo_graphs"], found["graphs"], found["breaks"], found["wide"]) == (1, 2, {}, [0, 0])
    forward, backward = found["launches"]
    assert forward["torch.ops.torch_attn._varlen_attn.default"] == 2
    assert backward["torch.ops.torch_attn._varlen_attn_backward.default"] == 2
    assert not any("scaled_dot_product" in name or "cumsum" in name for name in (*forward, *backward))
    # Of the scans Inductor leaves one to torch, and none is of the whole row.
    assert forward.get("torch.ops.aten.cummax.default", 0) <= 1


def test_no_graph_is_added_once_every_set_of_switches_has_one(guard: Path, tmp_path: Path) -> None:
    cases = [f"switches:{overrides}" for overrides in (SWITCHED, "experiment=gold6_11l")]
    found = lines_of(tmp_path, "compiled_step.py", str(guard), *cases)
    assert [(line["sets"], line["graphs"], line["added"]) for line in found] == [(2, 2, 0), (1, 1, 0)]


def test_golfs_kernels_fit_an_h100(tmp_path: Path) -> None:
    (found,) = lines_of(tmp_path, "own_kernels.py")
    assert len(found) == 8
    for name, kernel in found.items():
        assert kernel["cubin"] > 1000 and kernel["stack"] == 0 and kernel["shared"] <= SHARED_BYTES, (name, kernel)
        # A micro-batch of 65,536 tokens has 2³² logits over 65,536 pieces.
        assert kernel["narrow"] == 0, (name, kernel)
        # Products by the tensor cores' asynchronous instructions, on tiles that are copied asynchronously.
        assert (kernel["wgmma"] > 0, kernel["tma"] > 0) == (name.startswith("mlp"),) * 2, (name, kernel)
