"""Code lengths of a matrix's codes, as the entropy coder will find them, for rounding that pays for its bits."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

WIDTHS = 64  # half octaves of variance
UNIT_WIDTH = 20  # width of variance 1
PRIOR_CODES = 64.0  # codes of a normal distribution that every histogram starts with


@dataclass(frozen=True)
class BitPrices:
    """Prices of the bits of a code, in squared errors, by the width that is expected of it."""

    lengths: Tensor  # float64 [widths, 2, 256]: price of codes -128 to 127 at each width and offset
    rows: Tensor  # int64 [r]: width of each row
    columns: Tensor  # int64 [c]: width of each column, added to that of the row

    def of(self, rows: Tensor) -> BitPrices:
        """Return the prices of some rows."""
        return BitPrices(self.lengths, self.rows[rows.to(self.rows.device)], self.columns)

    def widths(self) -> Tensor:
        """Return the first index into `lengths` for every code, int64 `[r, c]`."""
        return (self.rows[:, None] + self.columns).clamp(0, self.lengths.size(0) - 1)


def no_prices(w: Tensor) -> BitPrices:
    """Return prices of zero for a matrix `[r, c]`."""
    rows, columns = (torch.zeros(size, dtype=torch.int64, device=w.device) for size in w.shape)
    return BitPrices(w.new_zeros(1, 2, 256), rows, columns)


def learned_prices(codes: Tensor, offsets: Tensor, bit: float) -> BitPrices:
    """Return the lengths of `codes` int8 `[r, c]` at `offsets` in bits, times `bit` squared errors.

    The coder knows how wide rows and columns are. Lengths are those of the codes' own histograms, one for each width
    and offset, which is what its counters hold when a matrix is coded.
    """
    # The summand keeps rows and columns of zeros from a logarithm of zero.
    squares = (codes.double() + offsets / 2).square() + 1e-3
    rows = (2 * (squares.mean(1) / squares.mean()).log2()).round().long()
    columns = (2 * squares.mean(0).log2()).round().long() + UNIT_WIDTH
    found = BitPrices(squares.new_zeros(WIDTHS, 2, 256), rows, columns)
    place = (found.widths() * 2 + offsets) * 256 + codes.long() + 128
    counts = torch.bincount(place.flatten(), minlength=WIDTHS * 512).view(WIDTHS, 2, 256) + PRIOR_CODES * _normal(codes)
    found.lengths.copy_(-bit * (counts / counts.sum(2, keepdim=True)).log2())
    return found


def _normal(codes: Tensor) -> Tensor:
    """Return the probabilities `[widths, 2, 256]` of the codes -128 to 127 if they are normal."""
    deviation = 2.0 ** ((torch.arange(WIDTHS, device=codes.device).double() - UNIT_WIDTH) / 4)[:, None, None]
    code = torch.arange(-128, 128, device=codes.device).double() + torch.tensor([[0.0], [0.5]], device=codes.device)
    # No code may cost infinitely many bits, however far out it lies.
    likely = (torch.special.ndtr((code + 0.5) / deviation) - torch.special.ndtr((code - 0.5) / deviation)) + 1e-6
    return likely / likely.sum(2, keepdim=True)
