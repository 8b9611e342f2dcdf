"""Signs and means against a loop, the way through the artifact to the bit, and the planned bytes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from torch import Tensor

import golf
from golf.artifact.container import load, pack, unpack
from golf.artifact.quant.policy import dequantize, storage_class
from golf.lab.artifacts.inspection import inspect_file
from golf.lab.plan.simulation import CONTROL_MEAN, CONTROL_STD, simulate
from golf.lab.plan.tensors import stored_tensors
from golf.settings.config import Config

STORED = ["tech=[binary,fake_quant]", "quant.attn.format=binary", "quant.mlp.format=binary", "quant.small_numel=1000"]


def composed(*overrides: str) -> Config:
    return golf.compose(["model=4l", "scale=laptop", *STORED, *overrides])


def weights(cfg: Config) -> dict[str, Tensor]:
    torch.manual_seed(0)
    model = golf.build_model(cfg)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.05)
    return dict(model.scored_weights())


def written_out(w: Tensor, group: int) -> Tensor:
    """The decoded tensor, one group after the other, in float64."""
    flat, found = w.flatten().double().tolist(), []
    for start in range(0, len(flat), group):
        part = flat[start : start + group]
        mean = torch.tensor(sum(map(abs, part)) / len(part)).to(torch.bfloat16).item()
        found += [-mean if x < 0 else mean for x in part]
    return torch.tensor(found).view(w.shape)


@pytest.mark.parametrize("shape", [(4, 256), (3, 100), (7,), (2, 3, 50), (0, 128)])
def test_values_are_signs_times_means(shape: tuple[int, ...]) -> None:
    form = composed().tech["binary"].number_format()
    w = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    codes, scales = form.codes(w)
    assert len(scales) == form.scale_count(shape)
    values = form.values(codes, scales)
    assert torch.equal(values, written_out(w, 128))
    # A tensor of such values is stored as it is.
    again = form.codes(values)
    assert torch.equal(again[0], codes) and torch.equal(again[1], scales)


@pytest.mark.parametrize("codec", ["quant.layout=[pack_bits]", "quant.codec=context"])
def test_the_artifact_holds_what_fake_quant_trained(codec: str, tmp_path: Path) -> None:
    if codec.endswith("context"):
        pytest.importorskip("numba")
    cfg = composed(codec)
    state = weights(cfg)
    content = pack(golf.quantize(state, cfg.quant, tech=cfg.tech), cfg.model, cfg.quant, cfg.tech)
    back = unpack(content).state_dict()
    model = golf.build_model(cfg)
    model.load_state_dict(state)
    for name, module in model.named_modules():
        if name.startswith("blocks.") and hasattr(module, "edited_weight"):
            assert torch.equal(module.edited_weight(("fake_quant",)), back[f"{name}.weight"])
            assert back[f"{name}.weight"].abs().unique().numel() <= module.weight.numel() / 128
    path = tmp_path / "artifact.golf"
    path.write_bytes(content)
    assert {t.format for t in inspect_file(path).tensors if t.tensor_class == "mlp"} == {"binary"}


def test_the_file_has_the_planned_bytes() -> None:
    cfg = composed("model.model_dim=128", "quant.layout=[pack_bits]")
    state = weights(cfg)
    for name, tensor in state.items():
        if storage_class(name, cfg.tech) == "control":
            tensor.normal_(CONTROL_MEAN, CONTROL_STD)
    tensors = stored_tensors(cfg, state)
    matrix = next(t for t in tensors if t.name == "blocks.0.mlp.fc.weight")
    assert matrix.raw_bits == matrix.numel * (1 + 16 / 128)
    content = pack(golf.quantize(state, cfg.quant, tech=cfg.tech), cfg.model, cfg.quant, cfg.tech)
    planned = simulate(cfg, tensors, {t.role: 0.05 for t in tensors})
    assert abs(planned.total / len(content) - 1) < 0.001


def test_dropped_its_tensors_are_int8() -> None:
    without = composed("drop=[binary]")
    assert (without.quant.attn.format, without.quant.mlp.format) == ("int8", "int8")
    state = weights(without)
    assert all(tensor.own is None for tensor in golf.quantize(state, without.quant, tech=without.tech).values())


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["quant.attn.rounding=gptq"], "rounds, scales and groups by itself"),
        (["quant.attn.format=int6", "quant.mlp.format=int6"], "No setting names the format of tech binary"),
        (["tech=[binary,ema]"], "drop ema beside binary"),
    ],
)
def test_what_does_not_go_together_is_refused(overrides: list[str], said: str) -> None:
    with pytest.raises(golf.GolfError, match=said):
        composed(*overrides)


def test_a_format_without_its_technique_is_named() -> None:
    with pytest.raises(golf.GolfError, match="select it with"):
        golf.compose(["model=4l", "scale=laptop", "quant.attn.format=binary"])


def test_patterns_of_names_may_name_it(tmp_path: Path) -> None:
    cfg = composed("quant.attn.format=int8", "quant.mlp.format=int8", "quant.by_name={*c_q*:binary}")
    coded = golf.quantize(weights(cfg), cfg.quant, tech=cfg.tech)
    assert {name for name, tensor in coded.items() if tensor.own} == {n for n in coded if "c_q" in n}
    (tmp_path / "a.golf").write_bytes(pack(coded, cfg.model, cfg.quant, cfg.tech))
    assert torch.equal(
        load(tmp_path / "a.golf").state_dict()["blocks.0.attn.c_q.weight"],
        dequantize(coded)["blocks.0.attn.c_q.weight"],
    )
    assert dataclasses.asdict(cfg.tech["binary"]) == {"group": 128}
