"""Step time and peak memory of a training step on GPUs, from the shapes that it computes.

Step time is a sum of what bounds a step (matrix products, attention, passes over the residual stream, a fixed part);
memory is a sum of what a compiled step keeps. The constants are fitted to public runs on eight H100s.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

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


# As scripts/dev/fit_step_model.py of 0.3.0 fitted them to 395 shapes in public train logs of 8×H100 up to May 2026.
# Times over the peak of the GPU, of bf16 passes over the residual stream in each layer over its bandwidth, and more.
MATMUL_TIMES, ATTENTION_TIMES, STREAM_PASSES, FIXED_MS = 2.17, 1.40, 104.2, 4.83
NO_FLASH3, XSA = 0.180, 0.0695  # logs of the slowdown at 2,048 tokens, and with XSA on every layer
# Copies kept of each kind of activation, and of the parameters in float32.
STREAM_COPIES, HIDDEN_COPIES, LOGIT_COPIES, XSA_COPIES, PARAM_COPIES, FIXED_MIB = 12.78, 2.02, 1.09, 2.17, 4.55, 89.9
# Measured over predicted step time on 8×H100, over authors: a quarter of the machines is slow, for no visible reason.
QUANTILES = {0.10: 0.972, 0.25: 0.985, 0.50: 1.007, 0.75: 1.093, 0.90: 1.293}
MEMORY_MARGIN = 1.25  # measured over predicted: 95 % of the runs stay below


Phases = Sequence[tuple[float, Work]]  # (share of the training time, work), such as before and after layers loop


def attended_tokens(seq_len: int, within_documents: bool) -> int:
    """Return the tokens of a row that attention reads at most: those of a document if it stops at a document's end."""
    return min(seq_len, DOCUMENT_CONTEXT) if within_documents else seq_len


def step_ms(phases: Phases) -> float:
    """Return the mean milliseconds of a run's steps on as many H100s that are not slow, under a clock."""
    # Under a clock steps a second are averaged, not seconds a step.
    return 1 / sum(share / _phase_ms(work) for share, work in phases)


def _phase_ms(w: Work) -> float:
    """Return the milliseconds of a step: products, attention and passes at the GPUs' peaks times their constants."""
    per_ms = w.batch_tokens / (w.gpus * H100_FLOPS) * 1000
    stream = BF16_BYTES * w.dim * w.layers * w.batch_tokens / (w.gpus * H100_BYTES) * 1000
    total = MATMUL_TIMES * 6 * w.matmul_params * per_ms + STREAM_PASSES * stream + FIXED_MS
    total += ATTENTION_TIMES * 6 * w.seq_len * w.dim * w.layers * per_ms
    # A dense mask multiplies hidden keys like others.
    total += 12 * w.masked_keys * w.dim * w.layers * w.batch_tokens / (w.gpus * MASKED_FLOPS) * 1000
    slower = XSA * w.xsa_share + (0.0 if w.flash3 else NO_FLASH3 * w.seq_len / 2048)
    return total * math.exp(slower)


def peak_mib(w: Work) -> float:
    """Return the MiB that a compiled step allocates on each GPU at its peak."""
    stream = w.micro_tokens * BF16_BYTES * w.dim * w.layers
    hidden = w.micro_tokens * BF16_BYTES * w.mlp_hidden * w.layers
    logits = w.micro_tokens * BF16_BYTES * w.vocab
    kept = (STREAM_COPIES + XSA_COPIES * w.xsa_share) * stream + HIDDEN_COPIES * hidden + LOGIT_COPIES * logits
    kept += PARAM_COPIES * FP32_BYTES * w.params
    if w.masked_keys:
        # The mask as bool and as bf16; keys and values of two spans, for every query head.
        kept += w.micro_tokens * w.masked_keys * (1 + BF16_BYTES) + 4 * stream
    return kept / MIB + FIXED_MIB


def by_kernel(work: Work, attention: str, documents: int) -> Work:
    """Return `work` with the kernel behind `model.attention=attention`.

    `documents` is the longest piece of a document in tokens where attention stops at the end of one, else 0.
    """
    if documents and attention in ("sdpa", "cudnn"):
        # A piece may begin in the span of as many tokens before its own.
        return replace(work, flash3=False, seq_len=0, masked_keys=2 * documents)
    return replace(work, flash3=attention == "fa3")
