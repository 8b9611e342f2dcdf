"""Orders of an artifact's values: public test vector, exact inverses, and each does what its name says."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from golf.artifact.codec.layouts import (
    LAYOUT_BITS,
    bytes_to_values,
    chunks_of,
    pack_bits,
    packed_entry,
    unpack_bits,
    values_to_bytes,
)
from golf.artifact.header import entry_of
from golf.artifact.quant.formats import CodedTensor
from golf.artifact.quant.policy import quantize
from golf.settings.config import QuantConfig, TensorQuant
from golf.settings.fields import choices

LAYOUTS = choices(QuantConfig, "layout")


def test_packed_bits_of_the_public_format() -> None:
    """Reference test vector of PR #1559's 6-bit packing."""
    assert pack_bits(np.array([1, 2, 3, 4]), 6).hex() == "813010"


@given(bits=st.integers(1, 8), data=st.data())
def test_packed_bits_come_back(bits: int, data: st.DataObject) -> None:
    values = np.array(data.draw(st.lists(st.integers(0, 2**bits - 1), max_size=40)), dtype=np.int16)
    packed = pack_bits(values, bits)
    assert len(packed) == -(-len(values) * bits // 8)
    assert np.array_equal(unpack_bits(packed, bits, len(values)), values)
    number = sum(int(v) << bits * i for i, v in enumerate(values))  # the slow definition
    assert packed == number.to_bytes(len(packed), "little")


def weights() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    size = torch.arange(1, 7).float().flip(0)[:, None]
    named = {f"blocks.{i}.{part}": torch.randn(6, 10) * size for i in range(2) for part in ("attn.c_q", "mlp.fc")}
    return {**named, "gain": torch.rand(5)}


@pytest.mark.parametrize("layout", [[], *([name] for name in LAYOUTS), list(LAYOUTS)])
def test_layouts_come_back_and_take_the_bytes_that_the_header_implies(layout: list[str]) -> None:
    coded = quantize(weights(), QuantConfig(attn=TensorQuant("int6"), small_numel=5))
    entries = [entry_of(name, tensor) for name, tensor in coded.items()]
    if "pack_bits" in layout:
        entries = [packed_entry(entry, coded[entry.name].data) for entry in entries]
    content = values_to_bytes([(entry, coded[entry.name]) for entry in entries], QuantConfig(layout=layout))
    assert len(content) == sum(chunk.size for chunk in chunks_of(entries, QuantConfig(layout=layout)))
    for name, tensor in bytes_to_values(content, entries, QuantConfig(layout=layout)).items():
        assert torch.equal(tensor.data, coded[name].data) and tensor.dtype == coded[name].dtype
    with pytest.raises(ValueError, match="more or fewer bytes"):
        bytes_to_values(content + b"\0", entries, QuantConfig(layout=layout))


def parts(layout: list[str]) -> tuple[list[str], bytes]:
    coded = quantize({n: t for n, t in weights().items() if n != "gain"}, QuantConfig(small_numel=0))
    entries = [entry_of(name, tensor) for name, tensor in coded.items()]
    content = values_to_bytes([(entry, coded[entry.name]) for entry in entries], QuantConfig(layout=layout))
    return [f"{chunk.name} {chunk.part}" for chunk in chunks_of(entries, QuantConfig(layout=layout))], content


def test_by_role_puts_layers_side_by_side() -> None:
    names = [name for name in parts(["by_role"])[0] if name.endswith("data")]
    assert names == [f"blocks.{i}.{part} data" for part in ("attn.c_q", "mlp.fc") for i in range(2)]


def test_byte_planes_gather_the_high_bytes_of_all_scales() -> None:
    """Scales of one size have equal exponents, which fp16 keeps in its second byte."""
    names, content = parts(["byte_planes"])
    assert [name.split()[1] for name in names] == ["data"] * 4 + ["scale"] * 4
    assert len(set(content[-24:])) < len(set(content[-48:-24]))


def test_sorted_rows_rise_in_magnitude() -> None:
    coded = {
        "a": CodedTensor(
            torch.tensor([[9, -9], [0, 1], [-4, 4]], dtype=torch.int8), torch.ones(3).half(), torch.float32
        )
    }
    content = values_to_bytes([(entry_of("a", coded["a"]), coded["a"])], QuantConfig(layout=["sort_rows"]))
    assert content[:6] == np.array([1, 2, 0], "<u2").tobytes()
    assert content[6:12] == np.array([0, 1, -4, 4, 9, -9], np.int8).tobytes()


def test_every_layout_of_the_configuration_has_its_bit() -> None:
    assert set(LAYOUTS) == set(LAYOUT_BITS) and sorted(LAYOUT_BITS.values()) == [1, 2, 4, 8]
