"""Kernels in Triton in an exported script, as text that Triton can read. `test_bundle.py` shows scripts without any."""

from __future__ import annotations

import ast
import functools
import importlib.util
import subprocess
import sys

import pytest

from golf.submission.script.bundle import Bundle, text_of
from tests.submission.script.contents import ON_H100, unwrapped
from tests.support import ROOT, compose

# Runs the program of a wrapped script up to its definitions, and computes a loss by its kernel.
LOSS_BY_SCRIPT = """
import sys, types
script = types.ModuleType("script")
script.__file__ = "train_gpt.py"
sys.modules["script"] = script
exec(compile(sys.stdin.read(), "script", "exec"), vars(script))
functions = [f for f in vars(script).values() if isinstance(f, types.FunctionType)]
(kernel_module,) = [f for f in functions if "exec" in f.__code__.co_consts]  # names of globals are short ones
import torch
logits, targets = torch.randn(3, 50, requires_grad=True), torch.tensor([0, 7, 49])
losses = kernel_module("triton_loss").fused_losses(logits, targets, 30.0)
losses.sum().backward()
other = torch.nn.functional.cross_entropy(30 * torch.tanh(logits / 30), targets, reduction="none")
torch.testing.assert_close(losses, other, rtol=0, atol=1e-5)
torch.testing.assert_close(logits.grad, torch.autograd.grad(other.sum(), logits)[0], rtol=0, atol=1e-5)
"""


@functools.cache
def bundle(*overrides: str) -> Bundle:
    return Bundle(compose(["experiment=naive_baseline", *ON_H100, *overrides]))


def kernel_texts(found: Bundle) -> dict[str, str]:
    """Return the texts in the program that is submitted."""
    program = ast.parse(unwrapped(found.wrapped))
    dicts = [ast.literal_eval(n) for n in ast.walk(program) if isinstance(n, ast.Dict) and "@triton" in ast.unparse(n)]
    (texts,) = dicts
    return texts


@pytest.mark.slow
def test_a_script_has_the_selected_kernel_as_text() -> None:
    found = bundle("launch.loss_kernel=triton")
    assert kernel_texts(found) == {"triton_loss": text_of("triton_loss")}
    assert "MLPKernel" not in found.readable and "import triton" not in found.readable.splitlines()
    assert max(map(len, found.readable.splitlines())) <= 120
    assert '    "@triton.jit\\n"\n' in found.readable  # a line of the text on each


def test_the_text_keeps_what_triton_reads() -> None:
    for name in ("triton_loss", "triton_mlp"):
        text = text_of(name)
        assert "tl.constexpr" in text and '"""' not in text and "#" not in text
        compile(text, name, "exec")


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason='needs Triton: pip install "golf[kernels]"')
def test_a_script_runs_its_kernels() -> None:
    found = bundle("launch.loss_kernel=triton", "launch.mlp_kernel=triton")
    assert set(kernel_texts(found)) == {"triton_loss", "triton_mlp"}
    program = unwrapped(found.wrapped)
    command = [sys.executable, "-c", f"import os; os.environ['TRITON_INTERPRET'] = '1'\n{LOSS_BY_SCRIPT}"]
    done = subprocess.run(command, input=program, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
