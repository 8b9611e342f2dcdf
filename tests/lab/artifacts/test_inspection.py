"""Artifacts taken apart, against what was packed."""

import math
import random
from collections import Counter
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from golf.artifact.codec.layouts import from_bytes
from golf.artifact.container import pack
from golf.artifact.quant.formats import CodedTensor
from golf.artifact.quant.policy import dequantize, quantize
from golf.errors import GolfError
from golf.lab.artifacts.inspection import inspect_file, stored_entropy_bits, totals_by_class
from golf.training.model.build import build_model
from tests.support import compose, golf_command


def weights() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "tok_emb.weight": torch.randn(64, 24, generator=generator).bfloat16(),
        "blocks.0.attn.c_q.weight": torch.randn(24, 24, generator=generator),
        "blocks.0.mlp.fc.weight": torch.randn(47, 23, generator=generator),
        "blocks.0.attn_scale": 1 + 0.1 * torch.randn(24, generator=generator),
    }


def written(folder: Path) -> Path:
    """Write an artifact of `weights`."""
    cfg = compose(["scale=laptop", "model=4l"])
    path = folder / "artifact.golf"
    path.write_bytes(pack(quantize(weights(), cfg.quant), cfg.model, cfg.quant))
    return path


def test_our_own_artifact_and_its_totals(tmp_path: Path) -> None:
    cfg = compose(["scale=laptop", "model=4l", "quant=int6_mixed", "quant.scale_floor=eps"])
    model = build_model(cfg)
    coded = quantize(model.state_dict(), cfg.quant)
    (tmp_path / "artifact.golf").write_bytes(pack(coded, cfg.model, cfg.quant, cfg.tech))
    inspection = inspect_file(tmp_path / "artifact.golf", model.state_dict())
    assert [t.name for t in inspection.tensors] == list(model.state_dict())
    assert sum(t.params for t in inspection.tensors) == sum(p.numel() for p in model.parameters())
    totals = {row.tensor_class: row for row in totals_by_class(inspection.tensors)}
    assert sum(row.coded_bytes for row in totals.values()) == pytest.approx(inspection.file_bytes)
    assert totals["embed"].format == "int8" and totals["control"].error == 0
    without = inspect_file(tmp_path / "artifact.golf")
    assert {t.error for t in without.tensors} == {None}


@given(st.lists(st.integers(-127, 127), min_size=1, max_size=200))
def test_entropy_by_its_definition(codes: list[int]) -> None:
    expected = sum(n * math.log2(len(codes) / n) for n in Counter(codes).values())
    data = torch.tensor(codes, dtype=torch.int8)
    assert stored_entropy_bits(CodedTensor(data, None, torch.float32)) == pytest.approx(expected, abs=1e-6)
    # A technique's format may have no scale, and an artifact gives it a stride of 0.
    none = from_bytes(b"", torch.float16, (0,)).as_strided((0,), (0,))
    assert stored_entropy_bits(CodedTensor(data, none, torch.float32)) == pytest.approx(expected, abs=1e-6)


def test_cut_files_are_refused(tmp_path: Path) -> None:
    whole = written(tmp_path).read_bytes()
    cut = tmp_path / "cut.golf"
    for length in [0, 1, 5, *random.Random(0).sample(range(6, len(whole) - 8), 12)]:
        cut.write_bytes(whole[:length])
        with pytest.raises(GolfError, match=r"cut\.golf is not an intact artifact"):
            inspect_file(cut)
    with pytest.raises(GolfError, match="cannot be read"):
        inspect_file(tmp_path / "missing")


def test_weights_of_another_run_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path)
    with pytest.raises(GolfError, match="give the weights of that run"):
        inspect_file(path, {"tok_emb.weight": torch.zeros(3, 3)})


def test_the_error_of_a_repaired_matrix_is_that_of_what_the_model_loads(tmp_path: Path) -> None:
    cfg = compose(["scale=laptop", "quant=int4_lqer", "quant.small_numel=0"])
    state = {"blocks.0.mlp.fc.weight": torch.randn(47, 23, generator=torch.Generator().manual_seed(0))}
    coded = quantize(state, cfg.quant, {name: torch.eye(23) for name in state})
    (path := tmp_path / "artifact.golf").write_bytes(pack(coded, cfg.model, cfg.quant))
    repaired, *factors = inspect_file(path, state).tensors
    loaded, exact = dequantize(coded)["blocks.0.mlp.fc.weight"], state["blocks.0.mlp.fc.weight"]
    assert repaired.error == pytest.approx(float((loaded - exact).norm() / exact.norm()), rel=1e-4)
    assert [t.error for t in factors] == [None, None]


def test_the_table_says_that_its_format_is_the_narrowest(tmp_path: Path) -> None:
    """At 30 deviations few codes of int6 are used, and the table names int4."""
    clip = ["quant.mlp.format=int6", "quant.mlp.clip=std", "quant.mlp.clip_k=30"]
    cfg = compose(["scale=laptop", "quant.small_numel=0", "quant.scale_floor=eps", *clip])
    state = {"blocks.0.mlp.fc.weight": torch.randn(32, 32, generator=torch.Generator().manual_seed(0))}
    (path := tmp_path / "artifact.golf").write_bytes(pack(quantize(state, cfg.quant), cfg.model, cfg.quant))
    assert inspect_file(path).tensors[0].format == "int4"
    shown = golf_command("inspect", str(path)).stdout
    assert "int4" in shown and "narrowest format: the narrowest that holds the codes" in shown
    assert golf_command("inspect", str(tmp_path)).stdout == shown, "a run's folder means its artifact"


def test_bytes_of_golfs_own_coder_are_counted(tmp_path: Path) -> None:
    """Alike columns cost it less than their order-0 entropy; a share by entropy would not show which tensor that is."""
    cfg = compose(["scale=laptop", "quant.codec=context", "quant.small_numel=0", "quant.scale_floor=eps"])
    generator = torch.Generator().manual_seed(0)
    alike = torch.randn(512, 1, generator=generator) + 0.1 * torch.randn(512, 32, generator=generator)
    state = {"tok_emb.weight": alike, "blocks.0.mlp.fc.weight": torch.randn(512, 32, generator=generator)}
    (path := tmp_path / "artifact.golf").write_bytes(pack(quantize(state, cfg.quant), cfg.model, cfg.quant))
    inspection = inspect_file(path)
    embed, matrix = inspection.tensors
    assert 8 * embed.coded_bytes < 0.9 * embed.entropy_bits and 8 * matrix.coded_bytes > 0.95 * matrix.entropy_bits
    assert inspection.layout == "golf, context"
    assert embed.coded_bytes + matrix.coded_bytes <= inspection.file_bytes
