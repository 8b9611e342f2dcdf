"""Bytes of compiled steps for an H100 without one: a ratchet on three presets, and a public script beside them."""

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

from bench.step_bytes import COLUMNS, largest, rows_of, table
from bench.step_costs import Kernel
from golf.lab.plan.flops import flops_per_token
from golf.training.model.build import shapeless_model
from tests.support import ROOT, compose

NO_COMPILER = shutil.which("g++") is None or importlib.util.find_spec("triton") is None or torch.cuda.is_available()
needs_compiler = pytest.mark.skipif(NO_COMPILER, reason="needs g++ and Triton, and would hide a GPU")
LOOPED = "tech.parallel_lanes.first=2 tech.recurrence.first=1 tech.recurrence.last=1"
# Few layers at full width, and the most GB that forward and backward pass of a micro-batch may move: who needs more
# says why in CHANGELOG.md, who needs less lowers the number.
MOST_GB = {
    "experiment=naive_baseline model.num_layers=2": 14.8,
    "experiment=gold6_11l model.num_layers=3": 13.6,
    f"experiment=records/2026-04-27_caseops_lqer_9hp model.num_layers=4 {LOOPED}": 66.5,
}


def kernel(phase: str, kind: str, name: str, gigabytes: int, flops: float = 0.0) -> Kernel:
    return Kernel(phase, kind, name, gigabytes * 10**9, 10**9, flops, launches=2 if kind == "product" else 1)


def test_rows_sum_kernels_by_part_and_by_kind() -> None:
    found = [
        *(kernel("forward", "triton", "add", n) for n in (1, 2)),
        kernel("forward", "product", "mm", 1, 989e12),
        kernel("backward", "triton", "add", 4),
        kernel("optimizer", "operation", "mul", 1),
    ]
    rows = rows_of("golf", found)
    assert [row[1] for row in rows] == ["forward", "backward", "forward and backward", "optimizer"]
    # 3 and 4 GB at 3,350 a second beside a whole second of products.
    assert rows[0] == ["golf", "forward", "4", "4.0", "3.0", "7.0", "989.00", "1001.5"]
    assert rows[2][2:6] == ["5", "8.0", "4.0", "12.0"] and rows[3][2:6] == ["1", "1.0", "1.0", "2.0"]
    assert [row[1] for row in largest("golf", found, 2)] == ["forward, triton: add", "backward, triton: add"]
    assert table(rows).splitlines()[0] == f"| {' | '.join(COLUMNS)} |" and len(table(rows).splitlines()) == 6


def counted(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    """Run the program with caches of its own, and return its JSON."""
    out = tmp_path / "bytes.json"
    caches = {"TRITON_CACHE_DIR": str(tmp_path / "triton"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor")}
    command = [sys.executable, "-W", "ignore", "-m", "bench.step_bytes", *arguments, "--json", str(out)]
    environment = {**os.environ, **caches, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(out.read_text())["steps"]
    return found


def gigabytes(kernels: list[dict[str, Any]]) -> float:
    return sum(k["read"] + k["written"] for k in kernels if k["phase"] != "optimizer") / 1e9


@needs_compiler
@pytest.mark.slow
@pytest.mark.skipif(torch.__version__ < "2.13", reason="earlier versions fuse differently")
@pytest.mark.parametrize("overrides", MOST_GB)
def test_steps_move_no_more_bytes_than_they_did(overrides: str, tmp_path: Path) -> None:
    step = counted(tmp_path, *overrides.split())["golf"]
    most = MOST_GB[overrides]
    assert 0.98 * most < gigabytes(step["kernels"]) <= most
    # The products are those that golf plan counts from the shapes, with its kernels in Triton as without them.
    cfg = compose(["scale=record", "rules.code_bytes=estimate", *overrides.split()])
    planned, flops = flops_per_token(cfg, shapeless_model(cfg)), {"product": 0.0, "attention": 0.0}
    for k in step["kernels"]:
        if k["phase"] != "optimizer" and k["kind"] in flops:
            flops[k["kind"]] += k["flops"] / step["tokens"]
    if not cfg.eval.documents:
        assert flops["product"] == pytest.approx(planned.matmul, rel=0.01)
        # The backward pass computes scores anew, which the plan leaves out.
        assert flops["attention"] == pytest.approx(planned.attention * 3.5 / 3, rel=0.01)


PUBLIC = """
import torch
import torch.nn.functional as F
from torch import nn

CONTROL_TENSOR_NAME_PATTERNS = ("scale",)

class Hyperparameters:
    train_batch_tokens, train_seq_len, vocab_size, model_dim = 8 * 256, 64, 128, 64
    matrix_lr, muon_momentum, muon_backend_steps = 0.1, 0.9, 2

class CastedLinear(nn.Linear):
    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype))

class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.proj, self.scale = CastedLinear(dim, dim, bias=False), nn.Parameter(torch.ones(dim))

    def forward(self, x):
        q = self.proj(F.rms_norm(x, (x.size(-1),))).view(*x.shape[:2], 2, -1).transpose(1, 2)
        assert q.dtype == torch.bfloat16
        y = F.scaled_dot_product_attention(q, q, q, is_causal=True).transpose(1, 2).reshape(x.shape)
        return x + self.scale.to(x.dtype) * y

class GPT(nn.Module):
    def __init__(self, vocab_size, model_dim):
        super().__init__()
        self.tok_emb, self.blocks = nn.Embedding(vocab_size, model_dim), nn.ModuleList([Block(model_dim)])
        self.skip_weights = nn.Parameter(torch.ones(1, model_dim))

    def forward(self, ids, targets):
        x = self.tok_emb(ids)
        x = self.blocks[0](x) + self.skip_weights.to(x.dtype) * x
        return F.cross_entropy(F.linear(x, self.tok_emb.weight).flatten(0, 1).float(), targets.flatten())

class Muon(torch.optim.SGD):
    def __init__(self, params, lr, momentum, backend_steps):
        super().__init__(params, lr=lr, momentum=momentum)

if __name__ == "__main__":
    raise SystemExit("its main is not for here")
"""


@needs_compiler
@pytest.mark.slow
def test_a_public_script_stands_beside_golf(tmp_path: Path) -> None:
    (tmp_path / "train_gpt.py").write_text(PUBLIC)
    shape = ["model.num_layers=1", "model.model_dim=64", "model.num_heads=2", "model.num_kv_heads=2"]
    found = counted(tmp_path, "experiment=naive_baseline", *shape, "--against", str(tmp_path))
    public = found["public"]["kernels"]
    assert found["public"]["tokens"] == 256 and {k["phase"] for k in public} == {"forward", "backward", "optimizer"}
    products = sum(k["flops"] for k in public if k["kind"] == "product")
    assert products == 6 * 256 * 64 * (64 + 128)
    assert sum(k["kind"] == "attention" for k in public) == 2
    names = [k["name"] for k in public if k["phase"] == "optimizer"]
    assert names.count("_fused_adam_") == 2 and any("add_" in name for name in names)
