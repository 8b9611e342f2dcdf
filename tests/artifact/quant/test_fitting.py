"""The dial that fills the cap: never over it, close below it, in few packs."""

import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from golf.artifact.quant.fitting import MOST_PACKS, fitting_factor, fitting_scales, octave_bytes, room_bytes, with_steps
from golf.artifact.quant.formats import CodedTensor, CodedTensors
from golf.lab.corpora.own_text import OwnDataset
from golf.lab.plan.lines import short_lines
from golf.lab.plan.plan import make_plan
from golf.settings.config import QuantConfig, TensorQuant, to_dict
from golf.settings.quant_config import tensor_classes
from golf.training.loop.calibration import calibrate
from golf.training.loop.packing import pack_model, round_model
from golf.training.model.build import build_model
from tests.support import compose, refusal, tiny_overrides


@settings(max_examples=80, deadline=None)
@given(
    # With fewer codes the noise below is wider than the room.
    codes=st.integers(4 * 10**5, 4 * 10**7),
    wanted_octaves=st.floats(-1.5, 2.5),
    bend=st.floats(0.0, 0.15),
    rest=st.integers(0, 200_000),
)
def test_it_ends_close_below_any_cap(codes: int, wanted_octaves: float, bend: float, rest: int) -> None:
    """Bytes that fall by less than a bit an octave, as those of trained weights do, with noise of the rounding."""
    packs: list[float] = []

    def packed(factor: float) -> int:
        packs.append(factor)
        octaves = math.log2(factor)
        noise = math.sin(1e6 * octaves) * math.sqrt(codes) / 8
        return int(rest + codes / 8 * (4.0 - octaves + bend * octaves * octaves / 2) + noise)

    target = packed(2.0**wanted_octaves)
    packs.clear()
    factor = fitting_factor(packed, target, codes / 8)
    assert factor is not None and target - room_bytes(target) <= packed(factor) <= target
    assert len(packs) <= MOST_PACKS + 1


def test_an_octave_is_a_bit_for_each_code_of_the_matrices() -> None:
    weights = {f"blocks.0.mlp.{name}": torch.zeros(shape) for name, shape in (("fc", (8, 16)), ("bias", (400,)))}
    weights["blocks.0.mlp.filters"] = torch.zeros(2, 4, 8)
    assert octave_bytes(weights, QuantConfig(mlp=TensorQuant("int6"), small_numel=0), {}) == 8 * 16 / 8


def test_steps_of_tensors_by_name_are_multiplied_like_those_of_their_class() -> None:
    named = {"*a*": {"format": "int6", "clip": "sd", "clip_k": 8.0}, "*b*": {"format": "int8"}, "*c*": "int5"}
    quant = QuantConfig(by_name=named)
    found = with_steps(quant, 1.5)
    assert found.by_name == {**named, "*a*": {"format": "int6", "clip": "sd", "clip_k": 12.0}}
    assert [how.clip_k for how in tensor_classes(found).values()] == [
        1.5 * how.clip_k for how in tensor_classes(quant).values()
    ]
    assert quant.by_name["*a*"]["clip_k"] == 8.0


def test_a_cap_that_nothing_fits_is_told() -> None:
    assert fitting_factor(lambda factor: 10**6, 10**5, 10**4) is None


@pytest.mark.slow
def test_a_real_model_fills_its_cap_and_the_plan_says_so(tiny: OwnDataset) -> None:
    quant = ["quant=trellis", "quant.fit=cap", "quant.calibration.tokens=512", "quant.small_numel=64"]
    cfg = compose([*tiny_overrides(tiny), *quant, "budget.artifact_bytes=60000"])
    torch.manual_seed(0)
    weights = {name: w + 0.02 * torch.randn_like(w) for name, w in build_model(cfg).state_dict().items()}
    hessians = calibrate(weights, cfg)
    as_it_is = dataclasses.replace(cfg, quant=dataclasses.replace(cfg.quant, fit="off"))
    coded = round_model(as_it_is, weights, 0, hessians)
    cfg.budget.artifact_bytes = len(pack_model(as_it_is, weights, coded).artifact) - 2500
    size = len(pack_model(cfg, weights, round_model(cfg, weights, 100, hessians)).artifact)
    assert cfg.budget.artifact_bytes - room_bytes(cfg.budget.artifact_bytes) <= size + 100 <= cfg.budget.artifact_bytes
    assert "fit" in to_dict(cfg)["quant"]
    line, *_ = short_lines(make_plan(cfg, [], code=100))
    assert "times as large" in line and "OVER" not in line


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (
            ("quant.fit=cap",),
            "quant.fit=cap moves steps, which quant.embed.clip=quantile takes from the",
        ),
        (("quant=trellis", "quant.fit=cap", "quant.prune.to_fit=true"), "quant.fit=cap fills the cap itself"),
    ],
)
def test_what_does_not_go_together_is_refused(overrides: tuple[str, ...], sentence: str) -> None:
    assert sentence in refusal(*overrides)


@pytest.mark.parametrize(
    ("cap", "factor", "sentence"),
    [(30_000, 8.0, "OVER THE CAP"), (900_000, 0.25, "0.25 is the finest, so the cap is not filled")],
)
def test_the_plan_moves_steps_no_further_than_the_dial(cap: int, factor: float, sentence: str) -> None:
    shape = ["model=4l", "model.num_layers=2", "model.model_dim=32", "model.num_heads=2", "model.num_kv_heads=1"]
    cfg = compose(["scale=laptop", *shape, "quant=trellis", "quant.fit=cap", f"budget.artifact_bytes={cap}"])
    plan = make_plan(cfg, [], code=34_000)
    assert plan.step_factor is not None and plan.step_factor.expected == factor
    assert plan.artifact.bytes.expected > 0 and sentence in short_lines(plan)[0]


@given(moves=st.lists(st.floats(0, 1), min_size=1, max_size=8), room=st.integers(0, 9), floats_fit=st.booleans())
def test_scales_that_moved_least_are_put_back_until_the_file_fits(
    moves: list[float], room: int, floats_fit: bool
) -> None:
    """A file costs a byte for each tensor whose scales differ from those before, and `room` bytes are left."""
    codes, float_values = torch.zeros(4, 2, dtype=torch.int8), torch.zeros(3)
    before = {f"{i}": CodedTensor(codes, torch.full((4,), 0.5), torch.float32) for i in range(len(moves))}
    before["float"] = CodedTensor(float_values, None, torch.float32)
    scales = [0.5 * torch.full((4,), move).exp() for move in moves]
    tuned = {f"{i}": CodedTensor(codes, scale, torch.float32) for i, scale in enumerate(scales)}
    tuned["float"] = CodedTensor(float_values + 1, None, torch.float32)

    def moved(tensors: CodedTensors) -> list[str]:
        pairs = ((name, tensor.scale, before[name].scale) for name, tensor in tensors.items())
        return [name for name, now, was in pairs if now is not None and was is not None and not torch.equal(now, was)]

    tries: list[int] = []

    def fits(tensors: CodedTensors) -> bool:
        tries.append(len(moved(tensors)))
        return tries[-1] <= room and (floats_fit or torch.equal(tensors["float"].data, float_values))

    found = fitting_scales(before, tuned, fits)
    assert len(tries) <= 6
    if not floats_fit:
        assert found is before
        return
    kept = moved(found)
    assert torch.equal(found["float"].data, float_values + 1) and len(kept) == min(room, len(moved(tuned)))
    least = min((moves[int(name)] for name in kept), default=math.inf)
    assert all(moves[int(name)] <= least for name in moved(tuned) if name not in kept)
