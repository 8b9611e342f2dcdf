"""Exactly the asked codes go, from the cheapest on, and a file is brought under its target in few packs."""

import zlib
from collections.abc import Mapping

import pytest
import torch

from golf.artifact.quant.formats import CodedTensor, decode
from golf.artifact.quant.policy import quantize
from golf.artifact.quant.pruning import MOST_PACKS, Pruning, prune_to_fit
from golf.settings.config import PruneConfig, QuantConfig, TensorQuant


def some_codes() -> dict[str, CodedTensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        name: CodedTensor(
            torch.randint(-3, 4, (rows, 40), generator=generator).to(torch.int8),
            torch.randint(1, 4, (rows,), generator=generator).half() / 8,
            torch.float32,
        )
        for name, rows in (("a", 5), ("b", 7))
    }


@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.37, 0.5, 1.0])
def test_number_and_order(fraction: float) -> None:
    coded = some_codes()
    pruning = Pruning(coded, ["a", "b"])
    may_go = {k: t.data.abs() == 1 for k, t in coded.items()}
    assert pruning.most == sum(int(m.sum()) for m in may_go.values())
    pruned = pruning.first(count := int(fraction * pruning.most))
    gone = {k: (coded[k].data != pruned[k].data) for k in coded}
    assert sum(int(g.sum()) for g in gone.values()) == count
    for name, changed in gone.items():
        assert (pruned[name].data[changed] == 0).all() and may_go[name][changed].all()
    size = {k: decode(t).abs() for k, t in coded.items()}
    removed = torch.cat([size[k][gone[k]] for k in coded])
    kept = torch.cat([size[k][may_go[k] & ~gone[k]] for k in coded])
    assert removed.numel() == 0 or kept.numel() == 0 or removed.max() <= kept.min()


def test_only_formats_below_int8_are_pruned() -> None:
    state = {f"blocks.0.{part}.weight": torch.randn(64, 64) * 0.05 for part in ("attn.c_q", "mlp.fc")}
    plain = QuantConfig(mlp=TensorQuant("int6"), small_numel=0)
    quant = QuantConfig(mlp=TensorQuant("int6"), small_numel=0, prune=PruneConfig(fraction=1.0))
    before, after = quantize(state, plain), quantize(state, quant)
    assert torch.equal(before["blocks.0.attn.c_q.weight"].data, after["blocks.0.attn.c_q.weight"].data)
    assert not (after["blocks.0.mlp.fc.weight"].data.abs() == 1).any()
    assert (before["blocks.0.mlp.fc.weight"].data.abs() == 1).any()


def test_nothing_to_prune() -> None:
    coded = some_codes()
    assert Pruning(coded, []).first(0)["a"] is coded["a"]


def compressed(coded: Mapping[str, CodedTensor]) -> int:
    return sum(len(zlib.compress(t.data.numpy().tobytes(), 6)) for t in coded.values())


@pytest.mark.parametrize("share", [0.02, 0.3, 0.9])
def test_a_target_is_met_closely_in_few_packs(share: float) -> None:
    generator = torch.Generator().manual_seed(1)
    coded = {
        f"w{i}": CodedTensor(
            (3 * torch.randn(200, 256, generator=generator)).round().to(torch.int8),
            torch.rand(200, generator=generator).half(),
            torch.float32,
        )
        for i in range(3)
    }
    pruning = Pruning(coded, list(coded))
    whole, smallest = compressed(coded), compressed(pruning.first(pruning.most))
    target = round(whole - share * (whole - smallest))
    packs = []

    def packed_bytes(tensors: Mapping[str, CodedTensor]) -> int:
        packs.append(compressed(tensors))
        return packs[-1]

    fitted = prune_to_fit(pruning, packed_bytes, target)
    assert fitted is not None and len(packs) <= MOST_PACKS
    pruned, count = fitted
    assert 0.998 * target <= compressed(pruned) <= target
    assert sum(int((pruned[k].data != coded[k].data).sum()) for k in coded) == count


def test_what_fits_is_left_alone_and_what_cannot_fit_is_said() -> None:
    coded = some_codes()
    pruning = Pruning(coded, ["a", "b"])
    fitted = prune_to_fit(pruning, compressed, 10_000)
    assert fitted is not None and fitted[1] == 0 and torch.equal(fitted[0]["a"].data, coded["a"].data)
    assert prune_to_fit(pruning, compressed, 10) is None


def test_the_smallest_weights_go_before_rounding() -> None:
    """Record 2026-03-20_10L_Int5MLP: below the 3 % quantile of a large matrix's magnitudes, whatever its format."""
    generator = torch.Generator().manual_seed(0)
    state = {name: torch.randn(40, 50, generator=generator) for name in ("tok_emb.weight", "blocks.0.mlp.fc.weight")}
    state |= {"blocks.0.resid_mix": torch.full((2, 50), 1e-9), "blocks.0.attn_scale": torch.zeros(3000)}
    how = TensorQuant("fp16")
    quant = QuantConfig(embed=how, mlp=how, other=how, small_numel=100, prune=PruneConfig(weights=0.03))
    coded = quantize(state, quant)
    for name in ("tok_emb.weight", "blocks.0.mlp.fc.weight"):
        magnitudes = state[name].abs()
        gone = decode(coded[name]) == 0
        assert int(gone.sum()) == 60 and magnitudes[gone].max() < magnitudes[~gone].min()
    assert torch.equal(decode(coded["blocks.0.resid_mix"]), state["blocks.0.resid_mix"])


def test_without_a_share_every_weight_stays() -> None:
    state = {"tok_emb.weight": torch.randn(40, 50)}
    quant = QuantConfig(embed=TensorQuant("fp16"), small_numel=100)
    assert torch.equal(decode(quantize(state, quant)["tok_emb.weight"]), state["tok_emb.weight"].half().float())
