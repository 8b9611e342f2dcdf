"""Exactly the asked share of the ones goes, from the cheapest rows, and nothing else changes."""

import pytest
import torch

from golf.config import QuantConfig, TensorQuant
from golf.quant.formats import CodedTensor
from golf.quant.policy import quantize
from golf.quant.pruning import prune_ones


@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.37, 0.5, 1.0])
def test_share_and_order(fraction: float) -> None:
    generator = torch.Generator().manual_seed(0)
    coded = {
        name: CodedTensor(
            torch.randint(-3, 4, (rows, 40), generator=generator).to(torch.int8),
            torch.randint(1, 4, (rows,), generator=generator).half() / 8,
            torch.float32,
        )
        for name, rows in (("a", 5), ("b", 7))
    }
    pruned = prune_ones(coded, ["a", "b"], fraction)
    gone = {k: (coded[k].data != pruned[k].data) for k in coded}
    ones = {k: coded[k].data.abs() == 1 for k in coded}
    assert sum(int(g.sum()) for g in gone.values()) == int(fraction * sum(int(o.sum()) for o in ones.values()))
    for name, changed in gone.items():
        assert (pruned[name].data[changed] == 0).all() and ones[name][changed].all()
    scales = {k: coded[k].scale[:, None].expand(coded[k].data.shape) for k in coded}  # type: ignore[index]
    removed = torch.cat([scales[k][gone[k]] for k in coded])
    kept = torch.cat([scales[k][ones[k] & ~gone[k]] for k in coded])
    assert removed.numel() == 0 or kept.numel() == 0 or removed.max() <= kept.min()


def test_only_formats_below_int8_are_pruned() -> None:
    state = {f"blocks.0.{part}.weight": torch.randn(64, 64) * 0.05 for part in ("attn.c_q", "mlp.fc")}
    quant = QuantConfig(mlp=TensorQuant("int6"), small_numel=0, prune_ones=1.0)
    before, after = quantize(state, QuantConfig(mlp=TensorQuant("int6"), small_numel=0)), quantize(state, quant)
    assert torch.equal(before["blocks.0.attn.c_q.weight"].data, after["blocks.0.attn.c_q.weight"].data)
    assert not (after["blocks.0.mlp.fc.weight"].data.abs() == 1).any()
    assert (before["blocks.0.mlp.fc.weight"].data.abs() == 1).any()
