"""Choices of kernels and compilers are no differences between scripts; what only looks like one is."""

from __future__ import annotations

import ast

import pytest

from golf.field.script_digests import digests, live_digests
from golf.field.script_kernels import without_kernels

ATTENTION = """
def forward(self, q, k, v):
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=(self.num_kv_heads != self.num_heads))
    return self.proj(y)


forward(model)
"""
REPEATED = """
def forward(self, q, k, v):
    if self.num_kv_heads != self.num_heads:
        times = self.num_heads // self.num_kv_heads
        k = k.repeat_interleave(times, dim=1)
        v = v.repeat_interleave(times, dim=1)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return self.proj(y)


forward(model)
"""
FLASH = """
from flash_attn_interface import flash_attn_func as attend


def forward(q):
    return attend(q)


forward(model)
"""
TRIED = """
try:
    from flash_attn_interface import flash_attn_func as attend
    HAS_FLASH = True
except ImportError:
    HAS_FLASH = False


def forward(q):
    if HAS_FLASH:
        return attend(q)
    return slow(q)


forward(model)
"""
STEPS = """
def forward(size):
    steps = 8 // size
    return torch.compile(size, dynamic=False) / steps


forward(model)
"""
COMPUTED = """
torch._dynamo.config.optimize_ddp = False


def forward(size):
    steps = int(os.environ.get("STEPS", 8 // size))
    return torch.compile(size, dynamic=False, disable=sys.platform == "win32") / steps


forward(model)
"""


COMPRESSED = """
try:
    import zstandard
    CODEC = "zstd"
except ImportError:
    CODEC = "zlib"


def packed(size):
    return zstandard.compress(size) if CODEC == "zstd" else zlib.compress(size)


packed(model)
"""
FUSED = """
try:
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction as fused
    HAS_FUSED = True
except ImportError:
    HAS_FUSED = False


def forward(q):
    if HAS_FUSED:
        return fused(q)
    return attend(q)


forward(model)
"""
VERSIONS = """
TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])
SHARES_HEADS = TORCH >= (2, 5)


def forward(self, q, k, v):
    shares = self.num_kv_heads != self.num_heads
    if shares and not SHARES_HEADS:
        groups = self.num_heads // self.num_kv_heads
        k = k.repeat_interleave(groups, dim=1)
        v = v.repeat_interleave(groups, dim=1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    else:
        more = {}
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, **({"enable_gqa": shares} if SHARES_HEADS else {}))
    return self.proj(y)


forward(model)
"""
FORGETS = """
def forward(size):
    for module in size.modules():
        if isinstance(module, Rotary):
            module._cos_cached = None
            module._sin_cached = None
    return attend(size)


forward(model)
"""


def what_runs(text: str, **values: str) -> dict[str, str]:
    tree = without_kernels(ast.parse(text), values)
    return live_digests(tree, values, digests(tree))


@pytest.mark.parametrize(
    ("text", "other"),
    [
        (ATTENTION, REPEATED),
        (FLASH, TRIED.replace("    return slow(q)\n", "    else:\n        return slow(q)\n")),
        (FLASH, TRIED.replace("if HAS_FLASH:", "if attend is not None:").replace("    return slow(q)\n", "")),
        (STEPS, COMPUTED),
        (ATTENTION, REPEATED.replace("    if self.num_kv_heads != self.num_heads:\n", "").replace("        ", "    ")),
        (ATTENTION, VERSIONS),
        (COMPRESSED, COMPRESSED.replace(' if CODEC == "zstd" else zlib.compress(size)', "")),
        (COMPRESSED, 'import zstandard\n\nCODEC = "zstd"\n' + COMPRESSED.partition('"zlib"\n')[2]),
        (FLASH.replace("from flash_attn_interface import flash_attn_func as attend\n", ""), FUSED),
        (FORGETS, "def forward(size):\n    return attend(size)\n\n\nforward(model)\n"),
    ],
)
def test_kernels_make_no_difference(text: str, other: str) -> None:
    assert what_runs(text) == what_runs(other)


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        (REPEATED, "repeat_interleave(times, dim=1)", "repeat(1, times, 1, 1)"),
        (REPEATED, "repeat_interleave(times, dim=1)", "repeat_interleave(times, dim=2)"),
        (REPEATED, "self.num_heads // self.num_kv_heads", "2"),
        (REPEATED, "self.proj(y)", "self.proj(y - v)"),
        (REPEATED, "self.num_kv_heads != self.num_heads:", "self.num_kv_heads != self.num_heads or self.always:"),
        (REPEATED, "        v = v.repeat_interleave(times, dim=1)\n", ""),
        (REPEATED, "is_causal=True", "is_causal=False"),
        (VERSIONS, "TORCH >= (2, 5)", "TORCH < (2, 5)"),
        (VERSIONS, "torch.__version__", "other.__version__"),
        (VERSIONS, "shares and not SHARES_HEADS", "shares and SHARES_HEADS"),
    ],
)
def test_what_only_looks_like_repeated_heads_is_a_difference(text: str, before: str, after: str) -> None:
    assert before in text and what_runs(text.replace(before, after)) != what_runs(ATTENTION)


def test_a_flag_that_is_set_elsewhere_decides_nothing() -> None:
    tried = TRIED.replace("    return slow(q)\n", "    else:\n        return slow(q)\n")
    assert what_runs(tried + "\nHAS_FLASH = False\n")["forward"] != what_runs(FLASH)["forward"]
    assert what_runs(tried.replace("def forward(q)", "def forward(q, HAS_FLASH=0)")) != what_runs(FLASH)
    other = tried.replace("from flash_attn_interface", "from other_attention")
    assert what_runs(other)["forward"] != what_runs(FLASH)["forward"]


def test_what_only_looks_like_a_choice_is_a_difference() -> None:
    packed = what_runs(COMPRESSED)["packed"]
    assert what_runs('import zlib\n\nCODEC = "zlib"\n' + COMPRESSED.partition('"zlib"\n')[2])["packed"] != packed
    assert what_runs(COMPRESSED.replace("import zstandard", "import snappy"))["packed"] != packed
    plain = what_runs("def forward(size):\n    return attend(size)\n\n\nforward(model)\n")["forward"]
    assert what_runs(FORGETS.replace("_cos_cached = None", "_cos_cached = size"))["forward"] != plain
    assert what_runs(FORGETS.replace("module._cos_cached", "module.weight"))["forward"] != plain


def test_a_variable_that_is_set_takes_the_place_of_what_is_computed() -> None:
    assert what_runs(COMPUTED, STEPS="4") != what_runs(STEPS)
