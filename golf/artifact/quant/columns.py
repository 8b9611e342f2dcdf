"""Steps of single columns: water-filling over the conditional variances of a layer's inputs.

The weighted error of GPTQ is Σ step²/12 · 1/U², with U the diagonal of `damped_root`. At equal bits it is least where
step and U are in proportion: the arithmetic mean of 1/U² becomes the geometric one. Source: WaterSIC, arXiv 2603.04956.
"""

from __future__ import annotations

import torch
from torch import Tensor

CODES_PER_OCTAVE = 4
LARGEST_CODE = 63
ROOM = 100  # codes that the weights of a column may take; those up to 127 are for what feedback adds


def column_codes(root: Tensor, exponent: float, used: Tensor) -> Tensor:
    """Return the int8 codes `[c]` of steps in proportion to the diagonal of `root` `[c, c]` to the power `exponent`.

    Their mean over the columns in `used` is about zero, so that the bits of a matrix stay what its row steps make them.
    """
    octaves = exponent * root.diagonal().log2()
    codes = CODES_PER_OCTAVE * (octaves - octaves[used].mean())
    return codes.round().clamp(-LARGEST_CODE, LARGEST_CODE).where(used, 0).to(torch.int8)


def least_column_codes(largest: Tensor) -> Tensor:
    """Return the least int8 code `[c]` of each column whose largest weight is `largest` `[c]` steps of its row."""
    # The bound keeps an empty column from a logarithm of zero.
    codes = CODES_PER_OCTAVE * (largest.clamp(min=1e-30) / ROOM).log2()
    # Rounded up, as a step that is slightly too small would cut weights off.
    return codes.ceil().clamp(-LARGEST_CODE, LARGEST_CODE).to(torch.int8)


def finer_column_codes(w: Tensor, hessian: Tensor, width: int) -> Tensor:
    """Return int8 codes `[c]`: half the step for the `width` neighbouring columns that matter most, zero elsewhere.

    Columns `[a, a + width)` matter by the sum of the root mean square of their inputs times the mean of |w|, with a a
    multiple of the width (AWQ-lite, PR #1908, which gives these columns int8 beside int7).
    """
    width, scores = min(width, w.size(1)), hessian.diagonal().sqrt() * w.abs().mean(0).to(hessian)
    best = int(scores[: scores.numel() // width * width].view(-1, width).sum(1).argmax())
    codes = torch.zeros(w.size(1), dtype=torch.int8, device=hessian.device)
    codes[best * width : (best + 1) * width] = -CODES_PER_OCTAVE
    return codes


def column_steps(codes: Tensor) -> Tensor:
    """Return the float32 factors `[c]` on the steps of the rows that `codes` stand for."""
    # Products of constants and powers of two are the same on every machine, exp2 need not be.
    roots = (1.0, 1.1892071, 1.4142135, 1.6817929)
    octaves = (divmod(code, CODES_PER_OCTAVE) for code in range(-128, 128))
    return torch.tensor([roots[part] * 2.0**octave for octave, part in octaves]).to(codes.device)[codes.long() + 128]
