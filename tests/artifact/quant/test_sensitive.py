"""Formats by sensitivity: the matrices whose inputs have the largest mean square get more bits."""

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from golf.artifact.quant.policy import quantize, storage_of, with_adaptive_clips, with_sensitive
from golf.settings.config import QuantConfig, SensitiveConfig, TensorQuant
from tests.support import parity, refusal

NAMES = [f"blocks.{i}.{part}.weight" for i in range(3) for part in ("attn.c_q", "attn.c_k", "mlp.fc")]
TRACES = [3.0, 3.0, 9.0, 1.0, 1.0, 0.5, 4.0, 4.0, 2.0]  # queries and keys read the same inputs


def quant(top: int, **settings: object) -> QuantConfig:
    coarse = TensorQuant(format="int5", rounding="gptq", clip_quantile=1.0, scale_floor="eps")
    other = QuantConfig(attn=coarse, mlp=coarse, small_numel=0, sensitive=SensitiveConfig(top))
    return dataclasses.replace(other, **settings)  # type: ignore[arg-type]


def state() -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    weights = {name: torch.randn(8, 4, generator=generator) for name in NAMES}
    return weights, {name: torch.eye(4) * trace / 4 for name, trace in zip(NAMES, TRACES, strict=True)}


@pytest.mark.parametrize("top", [0, 1, 4, 9, 99])
def test_the_largest_traces_get_the_finer_format(top: int) -> None:
    weights, hessians = state()
    coded = quantize(weights, quant(top), hessians)
    largest = {name: int(tensor.data.abs().max()) for name, tensor in coded.items()}
    slow = [name for _, _, name in sorted((-trace, i, NAMES[i]) for i, trace in enumerate(TRACES))][:top]
    assert largest == {name: 31 if name in slow else 15 for name in NAMES}


def test_the_other_settings_of_a_matrix_stay() -> None:
    weights, hessians = state()
    ruled = quant(
        2,
        by_name={
            "blocks.2.attn.c_q.weight": "int5",
            "blocks.0.mlp.*": {"format": "int4", "clip": "std", "clip_k": 3.0},
        },
    )
    names = with_sensitive(ruled, weights, hessians).by_name
    assert names["blocks.2.attn.c_q.weight"]["format"] == "int6" and list(names)[:2] == [
        "blocks.0.mlp.fc.weight",
        "blocks.2.attn.c_q.weight",
    ]
    finer = names["blocks.0.mlp.fc.weight"]
    assert (finer["format"], finer["clip"], finer["clip_k"], finer["rounding"]) == ("int6", "std", 3.0, "gptq")


def test_matrices_in_int8_or_without_inputs_are_none_of_them() -> None:
    weights, hessians = state()
    kept = quant(3, mlp=TensorQuant(format="int8", rounding="gptq"))
    del hessians["blocks.2.attn.c_q.weight"]
    expected = ["blocks.2.attn.c_k.weight", "blocks.0.attn.c_q.weight", "blocks.0.attn.c_k.weight"]
    assert list(with_sensitive(kept, weights, hessians).by_name) == expected


def test_an_estimate_takes_the_first_layers() -> None:
    assert list(with_sensitive(quant(4), state()[0], {}).by_name) == NAMES[:4]


def test_it_needs_hessians_and_formats_known_only_after_training() -> None:
    assert "Hessians of GPTQ" in refusal("scale=laptop", "model=4l", "quant=int6_mixed", "quant.sensitive.top=2")
    with_qat = ("scale=laptop", "model=4l", "quant=gptq_int6", "quant.sensitive.top=2", "tech=[fake_quant]")
    assert "fake_quant needs in it" in refusal(*with_qat)


def test_parity_with_adaptive_clips() -> None:
    """PR #1962: clips of four matrices; the embedding keeps its own, and a factor on all Hessians changes none."""
    arrays, config = parity("hessianclip1962")
    env, names = config["env"], list(config["k"])
    how: dict[str, Any] = {
        kind: TensorQuant("int7" if kind == "embed" else "int6", clip="std", rounding="gptq")
        for kind in ("embed", "attn", "mlp")
    }
    for kind, part in how.items():
        part.clip_k = env[f"{kind.upper()}_CLIP_SIGMAS"]
    weights = {name: torch.from_numpy(arrays[f"w/{name}"]) for name in names}
    for factor in (1.0, 1e4):
        hessians = {name: factor * torch.from_numpy(arrays[f"H_diag/{name}"]).diag() for name in names}
        found = with_adaptive_clips(QuantConfig(**how, clip_sensitivity=0.15), weights, hessians)
        clips = {name: storage_of(name, weights[name], found).clip_k for name in names}
        assert clips == pytest.approx(config["k"], rel=1e-5)
