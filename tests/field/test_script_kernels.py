"""Choices of kernels and compilers are no differences between scripts; what only looks like one is."""

from __future__ import annotations

import ast

import pytest

from golf.field.script_digests import digests, live_digests
from golf.field.script_kernels import without_kernels

ATTENTION = """
def forward(self, q, k, v):
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=(self.num_kv_heads != self.num_heads))
    return y


forward(model)
"""
REPEATED = """
def forward(self, q, k, v):
    if self.num_kv_heads != self.num_heads:
        times = self.num_heads // self.num_kv_heads
        k = k.repeat_interleave(times, dim=1)
        v = v.repeat_interleave(times, dim=1)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return y


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


def what_runs(text: str, **values: str) -> dict[str, str]:
    tree = without_kernels(ast.parse(text), values)
    return live_digests(tree, values, digests(tree))[0]


@pytest.mark.parametrize(
    ("text", "other"),
    [
        (ATTENTION, REPEATED),
        (FLASH, TRIED.replace("    return slow(q)\n", "    else:\n        return slow(q)\n")),
        (FLASH, TRIED.replace("if HAS_FLASH:", "if attend is not None:").replace("    return slow(q)\n", "")),
        (STEPS, COMPUTED),
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
        (REPEATED, "return y", "return y - v"),
        (REPEATED, "self.num_kv_heads != self.num_heads:", "self.num_kv_heads != self.num_heads or self.always:"),
        (REPEATED, "        v = v.repeat_interleave(times, dim=1)\n", ""),
        (REPEATED, "is_causal=True", "is_causal=False"),
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


def test_a_variable_that_is_set_takes_the_place_of_what_is_computed() -> None:
    assert what_runs(COMPUTED, STEPS="4") != what_runs(STEPS)
