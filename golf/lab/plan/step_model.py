"""Step time and peak memory of a training step on GPUs, from the shapes that it computes.

Step time is a sum of what bounds a step (matrix products, attention, passes over the residual stream, a fixed part);
memory is a sum of what a compiled step keeps. The constants are fitted to public runs on eight H100s by
`scripts/dev/fit_step_model.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace

import numpy as np

H100_FLOPS, H100_BYTES = 989e12, 3.35e12  # a second: bf16 peak and memory bandwidth, NVIDIA's data sheet of the SXM5
BF16_BYTES, FP32_BYTES, MIB = 2, 4, 2**20
MASKED_FLOPS = 200e12  # a second, of torch's memory-efficient attention under a mask: a guess, no public run is known
DOCUMENT_CONTEXT = 700  # tokens of an average document of FineWeb that a packed row attends to


@dataclass(frozen=True)
class Work:
    """Shapes and counts of a training step in one phase of a run, which decide its time and memory."""

    gpus: int
    batch_tokens: int  # of all GPUs
    micro_tokens: int  # of one GPU and micro-batch
    seq_len: int  # tokens that attention reads, see `attended_tokens`
    layers: float  # as they run: one that runs twice counts twice
    dim: int
    mlp_hidden: int
    vocab: int
    params: int
    matmul_params: float  # parameters that multiply, as they run
    xsa_share: float = 0.0  # of the layers
    flash3: bool = True
    masked_keys: int = 0  # keys that each query reads under a dense mask, in place of `seq_len` by flash attention


@dataclass(frozen=True)
class TimeConstants:
    """Constants of `step_ms`. `matmul` and `attention` are over the peak of the GPU, `passes` over its bandwidth."""

    matmul: float
    attention: float
    passes: float  # bf16 passes over the residual stream in each layer
    fixed_ms: float
    no_flash3: float  # log of the slowdown at 2,048 tokens
    xsa: float  # log of the slowdown with XSA on every layer


@dataclass(frozen=True)
class MemoryConstants:
    """Constants of `peak_mib`: copies kept of each kind of activation, and of the parameters in float32."""

    stream: float
    hidden: float
    logits: float
    xsa: float
    params: float
    fixed_mib: float


# As scripts/dev/fit_step_model.py fits them to 395 shapes in public train logs of 8×H100 up to May 2026.
TIME = TimeConstants(matmul=2.17, attention=1.40, passes=104.2, fixed_ms=4.83, no_flash3=0.180, xsa=0.0695)
MEMORY = MemoryConstants(stream=12.78, hidden=2.02, logits=1.09, xsa=2.17, params=4.55, fixed_mib=89.9)
# Measured over predicted step time on 8×H100, over authors: a quarter of the machines is slow, for no visible reason.
QUANTILES = {0.10: 0.972, 0.25: 0.985, 0.50: 1.007, 0.75: 1.093, 0.90: 1.293}
MEMORY_MARGIN = 1.25  # measured over predicted: 95 % of the runs stay below


Phases = Sequence[tuple[float, Work]]  # (share of the training time, work), such as before and after layers loop


def attended_tokens(seq_len: int, within_documents: bool) -> int:
    """Return the tokens of a row that attention reads at most: those of a document if it stops at a document's end."""
    return min(seq_len, DOCUMENT_CONTEXT) if within_documents else seq_len


def step_ms(phases: Phases, constants: TimeConstants = TIME) -> float:
    """Return the mean milliseconds of a run's steps on as many H100s that are not slow, under a clock."""
    return float(np.exp(log_step_ms([phases], astuple(constants)))[0])


def peak_mib(work: Work, constants: MemoryConstants = MEMORY) -> float:
    """Return the MiB that a compiled step allocates on each GPU at its peak."""
    kept = memory_terms([work])[0] @ np.array(astuple(constants)[:5]) + constants.fixed_mib
    if not work.masked_keys:
        return float(kept)
    # The mask as bool and as bf16; keys and values of two spans, for every query head.
    mask, stream = work.micro_tokens * work.masked_keys * (1 + BF16_BYTES), memory_terms([work])[0][0]
    return float(kept + mask / MIB + 4 * stream)


def log_step_ms(runs: Sequence[Phases], values: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return the logs of the predicted milliseconds `[n]` of `runs`."""
    matmul, attention, passes, fixed, no_flash3, xsa = values
    works = [work for phases in runs for _, work in phases]
    total = np.array([[*_ideal_ms(w), 1.0] for w in works]) @ np.array([matmul, attention, passes, fixed])
    total += [_masked_ms(w) for w in works]
    slower = [no_flash3 * w.seq_len / 2048 * (not w.flash3) + xsa * w.xsa_share for w in works]
    # Under a clock steps a second are averaged, not seconds a step.
    shares = np.array([share for phases in runs for share, _ in phases])
    starts = np.cumsum([0, *(len(phases) for phases in runs[:-1])])
    return -np.log(np.add.reduceat(shares / (total * np.exp(slower)), starts))


def _ideal_ms(w: Work) -> tuple[float, float, float]:
    """Return the milliseconds of products, causal attention and one pass over the stream at the GPUs' peaks."""
    per_ms = w.batch_tokens / (w.gpus * H100_FLOPS) * 1000
    stream = BF16_BYTES * w.dim * w.layers * w.batch_tokens / (w.gpus * H100_BYTES) * 1000
    return 6 * w.matmul_params * per_ms, 6 * w.seq_len * w.dim * w.layers * per_ms, stream


def _masked_ms(w: Work) -> float:
    """Return the milliseconds of attention under a dense mask, which multiplies hidden keys like others."""
    return 12 * w.masked_keys * w.dim * w.layers * w.batch_tokens / (w.gpus * MASKED_FLOPS) * 1000


def by_kernel(work: Work, attention: str, documents: int) -> Work:
    """Return `work` with the kernel behind `model.attention=attention`.

    `documents` is the longest piece of a document in tokens where attention stops at the end of one, else 0.
    """
    if documents and attention in ("sdpa", "cudnn"):
        # A piece may begin in the span of as many tokens before its own.
        return replace(work, flash3=False, seq_len=0, masked_keys=2 * documents)
    return replace(work, flash3=attention == "fa3")


def memory_terms(works: Sequence[Work]) -> np.ndarray:
    """Return the MiB `[n, 5]` of one copy of each kind of memory."""
    rows = []
    for w in works:
        stream = w.micro_tokens * BF16_BYTES * w.dim * w.layers
        hidden = w.micro_tokens * BF16_BYTES * w.mlp_hidden * w.layers
        logits = w.micro_tokens * BF16_BYTES * w.vocab
        rows.append([stream, hidden, logits, stream * w.xsa_share, FP32_BYTES * w.params])
    return np.array(rows) / MIB
