"""The artifact file: exact round trips, and one sentence for everything that is not an intact one."""

import random
import struct
import zlib
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from golf.artifact import container
from golf.artifact.codecs import compress, decompress
from golf.artifact.container import load, pack, unpack
from golf.composition import compose
from golf.config import ModelConfig, QuantConfig
from golf.errors import GolfError
from golf.model.build import build_model
from golf.model.gpt import GPT
from golf.quant.formats import CodedTensor
from golf.quant.policy import dequantize, quantize

MODEL = ModelConfig(vocab_size=64, num_layers=3, model_dim=16, num_heads=2, num_kv_heads=1, compute_dtype="bf16")
CODECS = [
    QuantConfig(),
    QuantConfig(codec="zstd", codec_level=22),
    QuantConfig(codec="lzma", codec_level=6),
    QuantConfig(rotation="hadamard", by_name={"blocks.1.*": "int5", "*.mlp.fc.weight": "int4"}),
]


def coded_model(quant: QuantConfig) -> dict[str, CodedTensor]:
    torch.manual_seed(0)
    state = {name: torch.randn_like(t, dtype=torch.float32).to(t.dtype) for name, t in GPT(MODEL).state_dict().items()}
    return quantize(state, quant)


@pytest.mark.parametrize("quant", CODECS)
@pytest.mark.parametrize("formats", ["int8", "int6", "fp16"])
def test_round_trip_is_exact(quant: QuantConfig, formats: str) -> None:
    quant = QuantConfig(**{**vars(quant), "attn": formats, "embed": formats, "small_numel": 20})
    coded = coded_model(quant)
    back = unpack(pack(coded, MODEL, quant))
    assert list(back.coded) == list(coded)
    assert vars(back.model) == vars(MODEL)
    for name, tensor in dequantize(coded).items():
        assert torch.equal(back.state_dict()[name], tensor) and back.state_dict()[name].dtype == tensor.dtype
    GPT(back.model).load_state_dict(back.state_dict())


@given(
    shape=st.lists(st.integers(0, 5), max_size=3),
    dtype=st.sampled_from([torch.int8, torch.int64, torch.bool, torch.float16, torch.bfloat16, torch.float32]),
    scale=st.sampled_from([None, "row", "all"]),
)
def test_any_tensor_round_trips(shape: list[int], dtype: torch.dtype, scale: str | None) -> None:
    if scale == "row" and not shape:
        scale = "all"
    data = torch.randint(0, 2, shape).to(dtype)
    scales = {None: None, "all": torch.tensor(0.5), "row": torch.rand(shape[:1]).half()}
    coded = {"x": CodedTensor(data, scales[scale], torch.float32)}
    back = unpack(pack(coded, MODEL, QuantConfig())).coded["x"]
    assert torch.equal(back.data, data) and back.data.dtype == dtype
    assert back.scale is None if scale is None else torch.equal(back.scale, coded["x"].scale)  # type: ignore[arg-type]


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


def forge(body: bytes, size: int, codec: int = 0, version: int = container.VERSION) -> bytes:
    """A file whose checksum is right, whatever it says."""
    fixed = container.FIXED.pack(container.MAGIC, version, codec, size)
    return fixed + container.CRC.pack(zlib.crc32(body, zlib.crc32(fixed))) + body


@pytest.mark.parametrize(
    "content",
    [
        forge(zlib.compress(bytes(100_000_000)), 10),  # says ten bytes, unpacks to a hundred million
        forge(zlib.compress(b"ten bytes!"), 1 << 31),  # says two billion
        forge(b"not zlib", 10),
        forge(b"not zstd", 10, codec=1),
        forge(compress(bytes(50_000_000), "zstd", 3), 1000, codec=1),
        forge(zlib.compress(b"x"), 1, codec=7),
        forge(zlib.compress(b"x"), 1, version=9),
        forge(zlib.compress(struct.pack("<I", 99)), 4),
        forge(zlib.compress(struct.pack("<I", 2) + b"{}"), 6),
        *(
            forge(zlib.compress(inner), len(inner))
            for header in (
                b'{"model":{},"tensors":[["a","fp32","fp32",[1000000000,1000000000],null]]}',
                b'{"model":{},"tensors":[["a","fp32","fp32",[-1,4],null]]}',
                b'{"model":{},"tensors":[["a","fp99","fp32",[1],null]]}',
                b'{"model":{"unknown":1},"tensors":[]}',
                b'{"model":{},"tensors":[["a"]]}',
                b"[1]",
            )
            for inner in [struct.pack("<I", len(header)) + header]
        ),
    ],
)
def test_hostile_files_end_in_one_sentence(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "artifact.golf"
    path.write_bytes(content)
    with pytest.raises(GolfError, match=r"artifact\.golf"):
        load(path)


def test_foreign_and_missing_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"PK\x03\x04")
    with pytest.raises(GolfError, match="does not start like one"):
        load(tmp_path / "a")
    with pytest.raises(GolfError, match="cannot be read"):
        load(tmp_path / "b")


@pytest.mark.parametrize("codec", ["zlib", "zstd", "lzma"])
def test_codecs_never_give_more_than_asked_for(codec: str) -> None:
    packed = compress(b"a" * 1000, codec, 9)
    assert decompress(packed, codec, 1000) == b"a" * 1000
    for size in (0, 999, 1001):
        with pytest.raises(ValueError):
            decompress(packed, codec, size)


def test_artifact_of_a_record_model_fits_its_cap() -> None:
    """The public baseline stores 17 M parameters in 15.8 MB; untrained weights compress better."""
    cfg = compose(["experiment=naive_baseline", "scale=record", "model.compute_dtype=bf16"])
    content = pack(quantize(build_model(cfg).state_dict(), cfg.quant), cfg.model, cfg.quant)
    assert len(content) < 16_000_000
