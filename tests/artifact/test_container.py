"""The artifact file: exact round trips, and one sentence for everything that is not an intact one."""

import dataclasses
import random
import struct
import zlib
from pathlib import Path

import pytest
import torch
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from golf.artifact import container
from golf.artifact.codec.codecs import compress, decompress
from golf.artifact.container import load, pack, unpack
from golf.artifact.header import DTYPES
from golf.artifact.quant.formats import CodedTensor
from golf.artifact.quant.policy import dequantize, quantize
from golf.errors import GolfError
from golf.settings.config import LQERConfig, ModelConfig, QuantConfig, TensorQuant
from golf.training.model.build import build_model
from golf.training.model.gpt import GPT
from tests.support import compose

MODEL = ModelConfig(vocab_size=64, num_layers=3, model_dim=16, num_heads=2, num_kv_heads=1, compute_dtype="bf16")
ROTATED = TensorQuant(rotation="hadamard")
QUANTS = {
    "zlib": QuantConfig(),
    "zstd": QuantConfig(codec="zstd", codec_level=22),
    "lzma": QuantConfig(codec="lzma", codec_level=6),
    "brotli": QuantConfig(codec="brotli", codec_level=11),
    "context": QuantConfig(codec="context"),
    "mixed": QuantConfig(attn=ROTATED, mlp=ROTATED, by_name={"blocks.1.*": "int5", "*.mlp.fc.weight": "int4"}),
    "mixed_context": QuantConfig(
        codec="context", attn=ROTATED, mlp=ROTATED, by_name={"blocks.1.*": "int5", "*fc*": "int4"}
    ),
    "groups": QuantConfig(layout=["pack_bits"], mlp=TensorQuant("ternary", clip="absmean", group_size=8)),
    "groups_context": QuantConfig(codec="context", other=TensorQuant(group_size=4), mlp=TensorQuant(group_size=4)),
    "asymmetric": QuantConfig(small_numel=0, lqer=LQERConfig(rank=4, factors="asymmetric"), by_name={"*.fc*": "int4"}),
    "packed": QuantConfig(layout=["pack_bits"]),
    "sorted": QuantConfig(layout=["sort_rows", "by_role"]),
    "planes": QuantConfig(layout=["byte_planes"], codec="zstd"),
    "every_layout": QuantConfig(layout=["pack_bits", "by_role", "sort_rows", "byte_planes"], codec="brotli"),
}


def coded_model(quant: QuantConfig) -> dict[str, CodedTensor]:
    torch.manual_seed(0)
    state = {name: torch.randn_like(t, dtype=torch.float32).to(t.dtype) for name, t in GPT(MODEL).state_dict().items()}
    return quantize(state, quant)


@settings(max_examples=30, deadline=None)
@given(
    fmt=st.sampled_from(["int8", "int7", "int6", "int5", "int4", "ternary", "fp16", "fp32"]),
    clip=st.sampled_from(["quantile", "std", "absmean", "search"]),
    rotation=st.sampled_from(["none", "hadamard"]),
    codec=st.sampled_from(list(QUANTS)),
    small_numel=st.sampled_from([0, 20, 300]),
)
def test_every_format_comes_back_exactly(fmt: str, clip: str, rotation: str, codec: str, small_numel: int) -> None:
    how = TensorQuant(fmt, clip=clip, rotation=rotation)
    quant = dataclasses.replace(QUANTS[codec], attn=how, mlp=how, small_numel=small_numel)
    coded = coded_model(quant)
    for name, tensor in unpack(pack(coded, MODEL, quant)).coded.items():
        assert torch.equal(tensor.data, coded[name].data) and tensor.rotated == coded[name].rotated
        one, other = tensor.scale, coded[name].scale
        assert one is other is None or (one is not None and other is not None and torch.equal(one, other))


@pytest.mark.parametrize("quant", QUANTS.values(), ids=QUANTS.keys())
@pytest.mark.parametrize("formats", ["int8", "int6", "fp16"])
def test_round_trip_is_exact(quant: QuantConfig, formats: str) -> None:
    attn, embed = dataclasses.replace(quant.attn, format=formats), dataclasses.replace(quant.embed, format=formats)
    quant = dataclasses.replace(quant, attn=attn, embed=embed, small_numel=20)
    coded = coded_model(quant)
    back = unpack(pack(coded, MODEL, quant))
    assert list(back.coded) == list(coded)
    assert vars(back.model) == vars(MODEL)
    for name, tensor in dequantize(coded).items():
        assert torch.equal(back.state_dict()[name], tensor) and back.state_dict()[name].dtype == tensor.dtype
    GPT(back.model).load_state_dict(back.state_dict())


@st.composite
def coded_tensors(draw: st.DrawFn) -> CodedTensor:
    """Whatever a container can hold: codes of every width, values of every dtype, empty and scalar tensors."""
    shape = draw(st.lists(st.sampled_from([0, 1, 2, 3, 7, 33]), max_size=3))
    scale = draw(st.sampled_from([None, "row", "all"] if len(shape) == 2 else [None, "all"]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    if scale and draw(st.booleans()):
        limit = draw(st.sampled_from([0, 1, 2, 7, 31, 127, 128]))
        spread = draw(st.sampled_from([0.0, 0.6, 5.0, 300.0]))
        data = (torch.randn(shape, generator=generator) * spread).clamp(-limit, min(limit, 127)).to(torch.int8)
    else:
        dtype = draw(st.sampled_from(list(DTYPES.values())))
        data = torch.randint(-(2**62), 2**62, shape, generator=generator).to(dtype)
    bits = torch.randint(-(2**15), 2**15, shape[:1], generator=generator).to(torch.int16)
    smooth = draw(st.booleans())
    scales = {
        None: None,
        "all": torch.tensor(draw(st.floats(width=32)), dtype=torch.float32),
        "row": torch.rand(shape[:1], generator=generator).half() if smooth else bits.view(torch.float16),
    }
    rotated = scale == "row" and shape[1] > 0 and draw(st.booleans())
    columns, states = None, 1
    if scale == "row" and data.dtype == torch.int8:
        states = draw(st.sampled_from([1, 4, 8, 16]))
        if draw(st.booleans()):
            columns = torch.randint(-63, 64, shape[1:], generator=generator).to(torch.int8)
    return CodedTensor(data, scales[scale], draw(st.sampled_from(list(DTYPES.values()))), rotated, columns, states)


def bits_of(tensor: torch.Tensor) -> bytes:
    # A tensor without elements can have a stride of 0, which `view` refuses.
    return bytes(tensor.contiguous().flatten().view(torch.uint8).numpy()) if tensor.numel() else b""


@settings(max_examples=60, deadline=None)
@given(
    coded=st.dictionaries(st.sampled_from(["a.0", "a.1", "tok_emb.weight", "z"]), coded_tensors(), max_size=4),
    quant=st.sampled_from(list(QUANTS.values())),
)
def test_any_tensors_round_trip(coded: dict[str, CodedTensor], quant: QuantConfig) -> None:
    # Tensors are packed under the settings that made them, and only such with column steps make these.
    if any(tensor.columns is not None for tensor in coded.values()):
        quant = dataclasses.replace(quant, other=dataclasses.replace(quant.other, columns=0.7))
    back = unpack(pack(coded, MODEL, quant)).coded
    assert list(back) == list(coded)
    for name, tensor in coded.items():
        assert back[name].data.shape == tensor.data.shape and back[name].data.dtype == tensor.data.dtype
        assert bits_of(back[name].data) == bits_of(tensor.data)
        assert (back[name].dtype, back[name].rotated) == (tensor.dtype, tensor.rotated)
        assert back[name].states == tensor.states
        columns = back[name].columns
        assert columns is tensor.columns is None or bits_of(columns) == bits_of(tensor.columns)  # type: ignore[arg-type]
        if tensor.scale is None:
            assert back[name].scale is None
            continue
        scale = back[name].scale
        assert scale is not None and (scale.shape, scale.dtype) == (tensor.scale.shape, tensor.scale.dtype)
        assert bits_of(scale) == bits_of(tensor.scale)


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    content = pack(coded_model(QuantConfig()), MODEL, QuantConfig())
    generator = random.Random(0)
    for _ in range(1500):
        damaged = bytearray(content)
        damaged[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
        with pytest.raises(ValueError):
            unpack(bytes(damaged))


def test_every_cut_is_noticed() -> None:
    content = pack(coded_model(QuantConfig()), MODEL, QuantConfig())
    for length in [*range(40), *range(40, len(content), 997)]:
        with pytest.raises(ValueError):
            unpack(content[:length])


def forge(body: bytes, size: int, codec: int = 0, version: int = container.VERSION, layout: int = 0) -> bytes:
    """A file whose checksum is right, whatever it says."""
    fixed = container.FIXED.pack(container.MAGIC, version, codec, layout, size, len(body))
    return fixed + container.CRC.pack(zlib.crc32(body, zlib.crc32(fixed))) + body


def forge_header(header: bytes, values: bytes = b"", **settings: int) -> bytes:
    """The same around a header and values."""
    inner = struct.pack("<I", len(header)) + header + values
    return forge(zlib.compress(inner), len(inner), **settings)


@pytest.mark.parametrize(
    "content",
    [
        forge(zlib.compress(bytes(100_000_000)), 10),  # says ten bytes, unpacks to a hundred million
        forge(zlib.compress(b"ten bytes!"), 1 << 31),  # says two billion
        forge(zlib.compress(b"ten bytes!"), 1 << 29),
        forge(b"not zlib", 10),
        forge(b"not zstd", 10, codec=1),
        forge(b"not brotli", 10, codec=3),
        forge(b"not lzma, nor codes", 10, codec=4),
        forge(compress(bytes(50_000_000), QuantConfig(codec="zstd", codec_level=3)), 1000, codec=1),
        forge(compress(bytes(50_000_000), QuantConfig(codec="brotli", codec_level=3)), 1000, codec=3),
        forge(zlib.compress(b"x"), 1, codec=7),
        forge(zlib.compress(b"x"), 1, layout=16),
        forge(zlib.compress(b"x"), 1, version=9),
        forge(zlib.compress(struct.pack("<I", 99)), 4),
        forge(zlib.compress(struct.pack("<I", 2) + b"{}"), 6),
        forge_header(b"[" * 100_000),
        forge_header(b" " * (1 << 22) + b"{}"),
        *(
            forge_header(b'{"model":{},"tech":{},"tensors":[%s]}' % tensors)
            for tensors in (
                b'["a","fp32","fp32",[1000000000,1000000000],null]',
                b'["a","fp32","fp32",[-1,4],null]',
                b'["a","fp32","fp32",[true,4],null]',
                b'["a","fp32","fp32",[1,1,1,1,1,1,1,1,1],null]',
                b'["a","fp32","fp32",7,null]',
                b'["a","fp99","fp32",[1],null]',
                b'["a","fp32",[],[1],null]',
                b'["a","i6","fp32",[1],null]',
                b'["a","i8","fp32",[1],"row"]',
                b'["a","i8","fp32",[0,1],"row"],["a","i8","fp32",[0,1],"row"]',
                b'["a","i8","fp32",[1000000000,0],"row"]',
                b'["a","i8","fp32",[1,0],"row+hadamard"]',
                b'["a","fp16","fp32",[1,1],"row+columns"]',
                b'["a","i8","fp32",[1,1],"row+trellis5"]',
                b'["a","i8","fp32",[0,1000000000],"row+columns+trellis8"]',
                b'["a"]',
                b"7",
            )
        ),
        forge_header(b'{"model":{"unknown":1},"tech":{},"tensors":[]}'),
        forge_header(b'{"model":{"num_layers":0},"tech":{},"tensors":[]}'),
        forge_header(b'{"model":{},"tech":{"unheard":{}},"tensors":[]}'),
        forge_header(b'{"model":{},"tech":[],"tensors":{}}', b"more"),
        forge_header(b"[1]"),
        forge_header(b'{"model":{},"tech":{},"tensors":[["a","i8","fp32",[2,1],"row"]]}', bytes(10), layout=4),
    ],
)
def test_hostile_files_end_in_one_sentence(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "artifact.golf"
    path.write_bytes(content)
    with pytest.raises(GolfError, match=r"artifact\.golf"):
        load(path)


@pytest.mark.parametrize("codec", ["zlib", "context"])
def test_column_steps_and_trellises_have_a_version_of_their_own(codec: str) -> None:
    """Files without them stay in version 2, which every older Golf reads."""
    codes, quant = torch.ones(3, 4, dtype=torch.int8), QuantConfig(codec=codec)
    plain = CodedTensor(codes, torch.ones(3).half(), torch.float32)
    on_trellis = dataclasses.replace(plain, states=8)
    stepped = dataclasses.replace(plain, columns=torch.zeros(4, dtype=torch.int8))
    versions = [pack({"a": tensor}, MODEL, quant)[4] for tensor in (plain, on_trellis, stepped)]
    assert versions == [2, 3, 3]


def test_a_file_of_the_second_version_reads_as_it_always_did() -> None:
    """Pinned bytes that version 0.2.0 wrote for 0.5 * [[1, -2], [3, 0]]."""
    header = b'{"model":{},"tech":{},"tensors":[["a","i8","fp32",[2,2],"row"]]}'
    back = unpack(forge_header(header, b"\x01\xfe\x03\x00" + b"\x00\x38" * 2, version=2))
    assert back.state_dict()["a"].tolist() == [[0.5, -1.0], [1.5, 0.0]]


def test_a_file_of_another_version_says_so() -> None:
    with pytest.raises(ValueError, match="version 1 of the format"):
        unpack(b"GOLF\x01" + bytes(40))


def test_an_artifact_without_tensors_is_refused(tmp_path: Path) -> None:
    cfg = compose([])
    (tmp_path / "artifact.golf").write_bytes(pack({}, cfg.model, cfg.quant))
    with pytest.raises(GolfError, match="holds no tensors"):
        load(tmp_path / "artifact.golf")


def test_foreign_and_missing_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"PK\x03\x04")
    with pytest.raises(GolfError, match="does not start like one"):
        load(tmp_path / "a")
    with pytest.raises(GolfError, match="cannot be read"):
        load(tmp_path / "b")


@pytest.mark.slow
def test_artifact_of_a_record_model_fits_its_cap() -> None:
    """The public baseline stores 17 M parameters in 15.8 MB; untrained weights compress better."""
    cfg = compose(["experiment=naive_baseline", "scale=record", "model.compute_dtype=bf16"])
    content = pack(quantize(build_model(cfg).state_dict(), cfg.quant), cfg.model, cfg.quant)
    assert len(content) < 16_000_000


def test_zstd_takes_the_smaller_of_two_parses_and_both_come_back() -> None:
    """At level 22 short matches alone cost codes of a Gaussian up to 6 %, by chance of where the search starts."""
    codes = (torch.randn(1 << 17, generator=torch.Generator().manual_seed(0)) * 2.4).round().to(torch.int8)
    data = codes.numpy().tobytes()
    plain = zstandard.ZstdCompressor(level=22).compress(data)
    packed = compress(data, quant := QuantConfig(codec="zstd", codec_level=22))
    assert len(packed) <= len(plain) and decompress(packed, quant, len(data)) == data
    assert compress(data, QuantConfig(codec="zstd", codec_level=3)) == zstandard.ZstdCompressor(level=3).compress(data)
