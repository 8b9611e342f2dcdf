"""A model on the meta device has the names, shapes and bytes of the real one."""

import dataclasses

import pytest
import torch

from golf.artifact.quant.policy import quantize
from golf.lab.plan.tensors import stored_tensors
from golf.registry import technique_types
from golf.settings.config import Config
from golf.training.model.build import build_model, shapeless_model
from tests.support import compose

RECORD = ["scale=record", "data=pydocs", "launch.device=cpu", "model.attention=sdpa", "model.compute_dtype=bf16"]


@pytest.fixture(scope="module")
def bare() -> Config:
    return compose(["scale=laptop", "model=4l", "model.compute_dtype=bf16"])


@pytest.mark.parametrize("name", sorted(technique_types()))
def test_names_shapes_and_dtypes_are_the_real_ones(name: str, bare: Config) -> None:
    needed = [name, *technique_types()[name].requires]  # type: ignore[attr-defined]
    cfg = dataclasses.replace(bare, tech={n: technique_types()[n]() for n in needed})
    real = {k: (v.shape, v.dtype) for k, v in build_model(cfg).state_dict().items()}
    planned = {k: (v.shape, v.dtype) for k, v in shapeless_model(cfg).state_dict().items()}
    assert planned == real


@pytest.mark.parametrize("quant", ["int8", "int8_all", "int6_mixed", "fp16_embed", "ternary"])
def test_raw_bits_are_those_of_the_codes(quant: str) -> None:
    """Codes take a byte each in memory, whatever the format; raw bits are fewer by the unused bits of each byte."""
    cfg = compose(["scale=laptop", "model=4l", f"quant={quant}"])
    model = build_model(cfg)
    coded = quantize(model.state_dict(), cfg.quant)
    for tensor in stored_tensors(cfg, shapeless_model(cfg).state_dict()):
        spare = {"int6": 2, "int5": 3, "int4": 4, "ternary": 6}.get(tensor.format, 0) * tensor.numel
        assert tensor.raw_bits == 8 * coded[tensor.name].payload_bytes - spare, tensor.name


@pytest.mark.parametrize(
    "experiment, params, payload_bytes",
    [("naive_baseline", 17_059_912, 17_178_912), ("single_h100_8l", 19_417_152, 19_476_680)],
)
def test_public_payloads(experiment: str, params: int, payload_bytes: int) -> None:
    """The figures are those that the logs of the public runs print."""
    cfg = compose([f"experiment={experiment}", *RECORD])
    model = shapeless_model(cfg)
    assert sum(p.numel() for p in model.parameters()) == params
    assert sum(t.raw_bits for t in stored_tensors(cfg, model.state_dict())) == 8 * payload_bytes


def test_nothing_is_allocated() -> None:
    cfg = compose(["experiment=gold6_11l", *RECORD])
    assert {p.device for p in shapeless_model(cfg).parameters()} == {torch.device("meta")}
