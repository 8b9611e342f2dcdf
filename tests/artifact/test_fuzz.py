"""Ten thousand damaged artifacts: each is read or refused in a sentence, without a crash, a hang or a flood of memory.

Half of them have their checksum mended, so that the damage reaches the decoders; in half of these it is done before
compression, so that it reaches the header and the values.
"""

import json
import random
import resource
import struct
import zlib
from typing import Any

import pytest
import torch

from golf.artifact import container
from golf.artifact.codec.codecs import compress, decompress
from golf.artifact.container import NOT_INTACT, Artifact, pack, unpack
from golf.artifact.quant.formats import CodedTensor
from golf.artifact.quant.policy import quantize
from golf.settings.config import ModelConfig, QuantConfig, TensorQuant, TuneConfig

STEPS = TensorQuant("int6", rounding="trellis", columns=0.7)
ALL_LAYOUTS = ["pack_bits", "by_role", "sort_rows", "byte_planes"]
QUANTS = {
    "zlib": QuantConfig(small_numel=8),
    "zstd": QuantConfig(small_numel=8, codec="zstd", codec_level=3, layout=ALL_LAYOUTS),
    "lzma": QuantConfig(small_numel=8, codec="lzma", codec_level=0, layout=["sort_rows"]),
    "brotli": QuantConfig(small_numel=8, codec="brotli", codec_level=3, layout=["pack_bits"]),
    "context": QuantConfig(small_numel=8, codec="context", attn=TensorQuant("int6")),
    "steps": QuantConfig(small_numel=8, codec="context", embed=STEPS, attn=STEPS),
    "tuned": QuantConfig(small_numel=8, codec="context", embed=STEPS, attn=STEPS, tune=TuneConfig(steps=1)),
    "groups": QuantConfig(small_numel=8, codec="context", attn=TensorQuant("ternary", clip="absmean", group_size=4)),
    "steps_in_bytes": QuantConfig(small_numel=8, codec="brotli", codec_level=3, embed=STEPS, attn=STEPS),
}
MUTATIONS = 2200  # of each codec's file
LARGE = [-1, 0, 1, 2**8, 2**16, 2**31 - 1, 2**31, 2**40, 2**63 - 1]
VALUES: list[Any] = [
    *LARGE,
    -(2**70),
    None,
    True,
    "",
    "i8",
    "row",
    "all",
    "row+hadamard",
    "row+columns+trellis8",
    "group4",
    "fp16",
    [],
    {},
    [[]],
    0.5,
    1e308,
]
MAX_GROWTH_MIB = 1500


def small_artifact(quant: QuantConfig) -> bytes:
    torch.manual_seed(0)
    state = {
        "tok_emb.weight": torch.randn(40, 6),
        "blocks.0.attn.c_q.weight": torch.randn(8, 12),
        "blocks.0.q_gain": torch.randn(9),
        "step": torch.tensor(7),
    }
    hessians = {name: torch.diag(torch.rand(w.size(1)) ** 3) for name, w in state.items() if w.ndim == 2}
    coded = quantize(state, quant, hessians)
    if quant.tune.steps:
        # As a tuning leaves them: every row has a scale of its own, and floats are not those of the trained model.
        for tensor in coded.values():
            if tensor.scale is not None:
                tensor.scale.mul_(1 + 0.01 * torch.randn(tensor.scale.shape).to(tensor.scale.dtype))
    return pack(coded, ModelConfig(), quant)


def damaged(content: bytes, generator: random.Random) -> bytes:
    """One to three of: a bit flipped, a byte set, a cut, a piece repeated, left out or written over by a number."""
    out = bytearray(content)
    for _ in range(generator.choice([1, 1, 1, 2, 3])):
        at = generator.randrange(len(out)) if out else 0
        length = generator.choice([1, 4, 8, 40])
        kind = generator.randrange(7)
        if kind <= 1 and out:
            out[at] ^= 1 << generator.randrange(8)
        elif kind == 2 and out:
            out[at] = generator.choice([0, 1, 127, 128, 255])
        elif kind == 3:
            del out[at:]
        elif kind == 4:
            out[at:at] = out[at : at + length]
        elif kind == 5:
            del out[at : at + length]
        else:
            out[at : at + 8] = struct.pack("<q", generator.choice(LARGE))
    return bytes(out)


def with_checksum(fixed: bytes, rest: bytes) -> bytes:
    return fixed + container.CRC.pack(zlib.crc32(rest, zlib.crc32(fixed))) + rest


def damaged_inside(content: bytes, generator: random.Random) -> bytes:
    """The header's JSON or the values behind it changed, compressed again, all lengths right."""
    fixed, rest = content[: container.FIXED.size], content[container.FIXED.size + container.CRC.size :]
    magic, version, codec, layout, size, compressed = container.FIXED.unpack(fixed)
    name = {number: name for name, number in container.CODEC_IDS.items()}[codec]
    quant = QuantConfig(codec="lzma" if name == "context" else name, codec_level=1)
    inner = decompress(rest[:compressed], quant, size)
    start = 4 + struct.unpack("<I", inner[:4])[0]
    header, values = inner[4:start], inner[start:]
    if generator.random() < 0.5:
        header = json.dumps(changed(json.loads(header), generator)).encode()
    elif generator.random() < 0.5:
        header = damaged(header, generator)
    else:
        values = damaged(values, generator)
    inner = struct.pack("<I", len(header)) + header + values
    body = compress(inner, quant)
    fixed = container.FIXED.pack(magic, version, codec, layout, len(inner), len(body))
    return with_checksum(fixed, body + rest[compressed:])


def changed(tree: Any, generator: random.Random) -> Any:
    """One value somewhere in the header replaced."""
    if isinstance(tree, dict | list) and tree and generator.random() < 0.9:
        key = generator.choice(list(tree) if isinstance(tree, dict) else range(len(tree)))
        tree[key] = changed(tree[key], generator)
        return tree
    return generator.choice(VALUES)


def outcome(content: bytes) -> Artifact | None:
    """What reading gives; anything but an artifact or a refusal fails the test."""
    try:
        artifact = unpack(content)
        artifact.state_dict()
        return artifact
    except NOT_INTACT as error:
        assert str(error)
        return None


@pytest.mark.parametrize("codec", QUANTS)
def test_damaged_files_are_refused(codec: str) -> None:
    content = small_artifact(QUANTS[codec])
    assert outcome(content) is not None
    generator = random.Random(codec)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    read = 0
    for number in range(MUTATIONS):
        if number % 2:
            file = damaged(content, generator)
            assert file == content or outcome(file) is None
        elif number % 4:
            file = damaged(content, generator)
            read += outcome(with_checksum(file[: container.FIXED.size], file[container.FIXED.size + 4 :])) is not None
        else:
            read += outcome(damaged_inside(content, generator)) is not None
    assert 0 < read < MUTATIONS / 2, "damage to values is not damage to the file, damage to most of it is"
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10) - before < MAX_GROWTH_MIB


def test_every_flipped_bit_and_every_cut_of_a_file_of_codes_is_noticed() -> None:
    content = small_artifact(QUANTS["context"])
    for position in range(len(content)):
        flipped = bytearray(content)
        flipped[position] ^= 1 << position % 8
        assert outcome(bytes(flipped)) is None
        assert outcome(content[:position]) is None


def test_codes_that_end_early_or_late_are_refused() -> None:
    """With a checksum that fits: a cut stream, a longer one, and one for a header that asks for many more codes."""
    quant = QuantConfig(codec="context")
    few = {"a": CodedTensor(torch.randint(-9, 9, (20, 6), dtype=torch.int8), torch.rand(20).half(), torch.float32)}
    content = pack(few, ModelConfig(), quant)
    fixed, rest = content[: container.FIXED.size], content[container.FIXED.size + 4 :]
    for codes in (rest[:-1], rest[:-20], rest + b"\0", rest + rest):
        assert outcome(with_checksum(fixed, codes)) is None
    large = torch.randint(-9, 9, (2000, 100), dtype=torch.int8)
    many = {"a": CodedTensor(large, torch.ones(2000).half(), torch.float32)}
    long = pack(many, ModelConfig(), quant)
    *_, compressed = container.FIXED.unpack(long[: container.FIXED.size])
    body = long[container.FIXED.size + 4 :][:compressed]
    assert outcome(with_checksum(long[: container.FIXED.size], body + rest[-60:])) is None
