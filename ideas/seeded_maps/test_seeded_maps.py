"""The integers against published ones and a digest, the layer against its formula, bytes and the refusal of others."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

import golf
from golf.artifact.container import load, pack
from golf.artifact.quant.policy import quantize
from golf.errors import GolfError
from golf.training.model.gpt import GPT
from ideas.seeded_maps.seeded_maps import integers, signs_of

TINY = ["model=4l", "scale=laptop", "model.model_dim=32", "model.num_heads=2", "model.num_kv_heads=1"]


def built(*chosen: str) -> GPT:
    return golf.build_model(golf.compose([*TINY, "tech=[seeded_maps]", "tech.seeded_maps.rank=16", *chosen]))


def test_integers_are_those_of_splitmix64() -> None:
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert integers(1234567, 4).tolist() == published


def test_a_million_integers_have_their_digest() -> None:
    found = hashlib.sha256(integers(2058, 1_000_000).astype("<u8").tobytes()).hexdigest()
    assert found == "51a102319bd97da318cbe40f561a497081a01e97b873499412db9efb55fae5fc"


def test_signs_are_the_bits_of_the_integers() -> None:
    signs = signs_of(5, 3, 50)
    words = integers(5, 3).tolist()
    expected = [1 if words[i // 64] >> (i % 64) & 1 else -1 for i in range(150)]
    assert signs.flatten().tolist() == expected
    assert abs(float(signs_of(7, 512, 512).mean())) < 0.01


def test_the_layer_is_the_map_plus_its_adapter() -> None:
    linear = built().double().blocks[1].mlp.fc
    torch.manual_seed(0)
    linear.down.weight.data.normal_()
    x = torch.randn(5, 32, dtype=torch.float64)
    whole = linear.signs.double().numpy() / np.sqrt(32) + (linear.up.weight @ linear.down.weight).detach().numpy()
    np.testing.assert_allclose(linear(x).detach().numpy(), x.numpy() @ whole.T, rtol=1e-10, atol=1e-12)
    assert not torch.equal(linear.signs, built().blocks[0].mlp.fc.signs)


def test_the_file_holds_no_map_and_opens_with_its_digest_alone(tmp_path: Path) -> None:
    cfg = golf.compose([*TINY, "tech=[seeded_maps]", "tech.seeded_maps.rank=16"])
    model = golf.build_model(cfg)
    coded = quantize(model.scored_weights(), cfg.quant, tech=cfg.tech)
    assert not any("signs" in name for name in coded)
    assert sum(t.payload_bytes for name, t in coded.items() if name.endswith("digest")) == 8 * len(model.blocks)
    file = tmp_path / "a.bin"
    file.write_bytes(pack(coded, cfg.model, cfg.quant, cfg.tech))
    weights = load(file).state_dict()
    built().load_state_dict(weights)
    with pytest.raises(GolfError, match=r"blocks\.0\.mlp were trained on random maps .* set the seed"):
        built("tech.seeded_maps.seed=1").load_state_dict(weights)


def test_an_adapter_as_narrow_as_a_gate_is_refused() -> None:
    with pytest.raises(GolfError, match="channels of a head"):
        built("tech.seeded_maps.rank=3")
