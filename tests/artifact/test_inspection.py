"""Artifacts taken apart: our own against what was packed, public ones written here exactly by their definition."""

import io
import lzma
import math
import os
import pickle
import random
import zipfile
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from golf.artifact import upstream
from golf.artifact.container import pack
from golf.artifact.inspection import inspect_file, stored_entropy_bits, totals_by_class
from golf.artifact.quant.formats import CodedTensor
from golf.artifact.quant.policy import dequantize, quantize
from golf.artifact.upstream import unpack_int6
from golf.errors import GolfError
from golf.training.model.build import build_model
from tests.support import compose, golf_command

COMPRESSORS = {
    "zlib": lambda raw: zlib.compress(raw, 9),
    "zstd": zstandard.ZstdCompressor(level=3).compress,
    "lzma": lzma.compress,
    "none": bytes,
}


def weights() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "tok_emb.weight": torch.randn(64, 24, generator=generator).bfloat16(),
        "blocks.0.attn.c_q.weight": torch.randn(24, 24, generator=generator),
        "blocks.0.mlp.fc.weight": torch.randn(47, 23, generator=generator),
        "blocks.0.attn_scale": 1 + 0.1 * torch.randn(24, generator=generator),
    }


def int8_clean_per_row(state: dict[str, torch.Tensor]) -> dict[str, Any]:
    """The baseline's object: techniques reference §12.1, the floor and the stored fp16 scale included."""
    saved: dict[str, Any] = {"__quant_format__": "int8_clean_per_row_v1", "quantized": {}, "scales": {}, "dtypes": {}}
    saved |= {"passthrough": {}, "qmeta": {}, "passthrough_orig_dtypes": {}}
    for name, tensor in state.items():
        if tensor.ndim < 2:
            saved["passthrough"][name] = tensor.float()
            continue
        clip = torch.quantile(tensor.float().abs(), 0.9999984, dim=1)
        scale = (clip / 127).clamp_min(1 / 127)
        codes = torch.clamp(torch.round(tensor.float() / scale[:, None]), -127, 127).to(torch.int8)
        saved["quantized"][name], saved["scales"][name] = codes, scale.half()
        saved["dtypes"][name] = str(tensor.dtype).removeprefix("torch.")
        saved["qmeta"][name] = {"scheme": "per_row", "axis": 0}
    return saved


def pack_int6(codes: list[int]) -> bytes:
    """§12.4 of the reference, code by code."""
    padded = codes + [-32] * (-len(codes) % 4)
    out = b""
    for i in range(0, len(padded), 4):
        u = [q + 32 for q in padded[i : i + 4]]
        out += (u[0] | u[1] << 6 | u[2] << 12 | u[3] << 18).to_bytes(3, "little")
    return out


def mixed_int6_int8(state: dict[str, torch.Tensor]) -> dict[str, Any]:
    """PR #1559: matrices of the attention as packed int6, everything else int8, vectors with one scale."""
    saved: dict[str, Any] = {"__quant_format__": "mixed_int6_int8_per_row_v1", "quantized": {}, "scales": {}}
    saved |= {"dtypes": {}, "passthrough": {}, "qmeta": {}}
    for name, tensor in state.items():
        bits = 6 if "attn." in name else 8
        qmax = 2 ** (bits - 1) - 1
        clip = tensor.float().abs().amax(tuple(range(tensor.ndim))[-1:])
        scale = clip / qmax
        codes = torch.round(tensor.float() / (scale[:, None] if tensor.ndim == 2 else scale)).to(torch.int8)
        if bits == 6:
            codes = torch.frombuffer(bytearray(pack_int6(codes.flatten().tolist())), dtype=torch.uint8)
        saved["quantized"][name], saved["scales"][name] = codes, scale.half() if tensor.ndim == 2 else scale
        saved["qmeta"][name] = {"scheme": "per_row", "axis": 0, "bits": bits, "shape": tuple(tensor.shape)}
        saved["dtypes"][name] = str(tensor.dtype).removeprefix("torch.")
    return saved


def w_and_m(state: dict[str, torch.Tensor]) -> dict[str, Any]:
    """PR #414 and after: codes and scales by the ends of their names."""
    saved: dict[str, Any] = {"w": {}, "m": {}}
    for name, tensor in state.items():
        if tensor.ndim < 2:
            saved["w"][name], saved["m"][name] = tensor.half(), "passthrough"
            continue
        scale = tensor.float().abs().amax(1) / 31
        saved["w"][f"{name}.q"] = torch.round(tensor.float() / scale[:, None]).to(torch.int8)
        saved["w"][f"{name}.scale"], saved["m"][name] = scale.half(), {"type": "int6"}
    return saved


def write(saved: object, path: Path, codec: str = "zlib") -> Path:
    buffer = io.BytesIO()
    torch.save(saved, buffer)
    path.write_bytes(COMPRESSORS[codec](buffer.getvalue()))
    return path


@pytest.mark.parametrize("codec", COMPRESSORS)
@pytest.mark.parametrize("layout", [int8_clean_per_row, mixed_int6_int8, w_and_m])
def test_public_layouts(layout: Any, codec: str, tmp_path: Path) -> None:
    state = weights()
    path = write(layout(state), tmp_path / "final_model.ptz", codec)
    inspection = inspect_file(path, {k: v.float() for k, v in state.items()})
    rows = {row.name: row for row in inspection.tensors}
    assert set(rows) == set(state) and inspection.layout.endswith(codec)
    assert inspection.file_bytes == path.stat().st_size
    assert sum(row.coded_bytes for row in rows.values()) == pytest.approx(inspection.file_bytes)
    int6 = {int8_clean_per_row: set(), mixed_int6_int8: {"blocks.0.attn.c_q.weight"}}.get(layout, set(rows))
    for name, row in rows.items():
        assert row.shape == tuple(state[name].shape)
        if state[name].ndim == 2:
            assert row.format == ("int6" if name in int6 else "int8")
            step = 1 / 31 if row.format == "int6" else 1 / 127  # largest weights of a row are 2 to 3.5 times its RMS
            assert row.error is not None and 1.8 * step < row.error * math.sqrt(12) < 3.5 * step


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


@given(st.lists(st.integers(-32, 31), min_size=1, max_size=40))
def test_int6_unpacks_to_what_was_packed(codes: list[int]) -> None:
    packed = torch.frombuffer(bytearray(pack_int6(codes)), dtype=torch.uint8)
    assert unpack_int6(packed, [len(codes)]).tolist() == codes


def test_int6_of_the_reference() -> None:
    assert unpack_int6(torch.tensor([0x21 | 0, 0, 0], dtype=torch.uint8), [1]).tolist() == [1]
    assert pack_int6([1 - 32, 2 - 32, 3 - 32, 4 - 32]).hex() == "813010"


@given(st.lists(st.integers(-127, 127), min_size=1, max_size=200))
def test_entropy_by_its_definition(codes: list[int]) -> None:
    expected = sum(n * math.log2(len(codes) / n) for n in Counter(codes).values())
    data = torch.tensor(codes, dtype=torch.int8)
    assert stored_entropy_bits(CodedTensor(data, None, torch.float32)) == pytest.approx(expected, abs=1e-6)


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch hacked",)


def hostile() -> dict[str, object]:
    huge = torch.zeros(1).as_strided((1 << 20, 1 << 20), (0, 0))
    scales = torch.ones(3).half()
    return {
        "code": Evil(),
        "a list": [1, 2],
        "nothing": {},
        "no scales": {"quantized": {"a": torch.zeros(2, 2, dtype=torch.int8)}, "passthrough": {}},
        "scales": {"quantized": {"a": torch.zeros(2, 2, dtype=torch.int8)}, "scales": {"a": scales}},
        "floats": {"quantized": {"a": torch.zeros(2, 2)}, "scales": {"a": torch.ones(2)}},
        "shape": {
            "quantized": {"a": torch.zeros(3, dtype=torch.uint8)},
            "scales": {"a": torch.ones(())},
            "qmeta": {"a": {"bits": 6, "shape": [1 << 40]}},
        },
        "huge": {"w": {"a": huge}, "m": {}},
    }


@pytest.mark.parametrize("what", list(hostile()))
def test_hostile_content_is_refused_in_one_sentence(what: str, tmp_path: Path) -> None:
    content = hostile()[what]
    path = tmp_path / "final_model.ptz"
    if what == "code":
        path.write_bytes(zlib.compress(pickle.dumps(content)))
    else:
        write(content, path)
    with pytest.raises(GolfError, match=r"final_model\.ptz is no intact artifact \("):
        inspect_file(path)
    assert not Path("hacked").exists()


@pytest.mark.parametrize("codec", ["zlib", "zstd", "lzma", "none"])
def test_what_unpacks_without_end_is_refused(codec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream, "LARGEST_BYTES", 1 << 20)
    path = tmp_path / "bomb.ptz"
    if codec == "none":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("archive/data.pkl", bytes(1 << 22))
    else:
        path.write_bytes(COMPRESSORS[codec](bytes(1 << 22)))
    with pytest.raises(GolfError, match="unpacks to more than"):
        inspect_file(path)


def test_cut_and_altered_files_are_refused(tmp_path: Path) -> None:
    whole = write(int8_clean_per_row(weights()), tmp_path / "whole.ptz").read_bytes()
    cut = tmp_path / "cut.ptz"
    for length in [0, 1, 5, *random.Random(0).sample(range(6, len(whole) - 8), 12)]:
        cut.write_bytes(whole[:length])
        with pytest.raises(GolfError, match=r"cut\.ptz is no intact artifact"):
            inspect_file(cut)
    with pytest.raises(GolfError, match="cannot be read"):
        inspect_file(tmp_path / "missing")


def test_weights_of_another_run_are_refused(tmp_path: Path) -> None:
    path = write(int8_clean_per_row(weights()), tmp_path / "a.ptz")
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
