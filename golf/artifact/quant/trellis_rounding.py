"""GPTQ on a trellis: the Viterbi algorithm along the columns of a row, each survivor with error feedback of its own.

Each state keeps the best path that ends in it. Its target for the next column holds the errors of that path alone, and
its cost is the sum of their squares. Columns are decided `BLOCK` to twice `BLOCK` columns behind the front, so that the
memory does not grow with the row: survivors that disagree with the best one on what is decided are dropped. QTIP
(arXiv 2406.11235) shows that trellises and feedback go together, there at a fixed rate.
"""

from __future__ import annotations

import importlib.util
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from golf.artifact.quant.bit_prices import BitPrices
from golf.artifact.quant.trellis import transitions

BLOCK = 32  # columns that are decided together
GPU_ROWS = 1 << 14  # rows rounded together on a GPU


def trellis_codes(w: Tensor, root: Tensor, states: int, prices: BitPrices) -> Tensor:
    """Return the codes int8 `[r, c]` of `w` float64 `[r, c]`, measured in steps, under the U of `damped_root`."""
    if w.device.type == "cpu" and importlib.util.find_spec("numba"):
        return _row_by_row(w, root, states, prices)
    return torch.cat([in_batches(w[r], root, states, prices.of(r)) for r in torch.arange(w.size(0)).split(GPU_ROWS)])


def _row_by_row(w: Tensor, root: Tensor, states: int, prices: BitPrices) -> Tensor:
    """Round with compiled code, on as many threads as torch has."""
    # It imports numba, which may be missing.
    from golf.artifact.quant.trellis_kernel import round_rows

    codes = torch.empty(w.shape, dtype=torch.int8)
    threads = torch.get_num_threads()
    shared = [table.numpy() for table in (root.contiguous(), *transitions(states), prices.lengths)]
    by_row = [part.contiguous().numpy() for part in (w, prices.widths())] + [codes.numpy()]

    def work(rows: Tensor) -> None:
        round_rows(*(part[int(rows[0]) : int(rows[-1]) + 1] for part in by_row), *shared, BLOCK)

    # More parts than threads, so that no thread waits long for the slowest.
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, [rows for rows in torch.arange(w.size(0)).chunk(4 * threads) if rows.numel()]))
    return codes


def in_batches(w: Tensor, root: Tensor, states: int, prices: BitPrices) -> Tensor:
    """Return the codes of `trellis_codes`, all rows at once, column by column."""
    search = _Search(w, states, prices)
    for first in range(0, w.size(1), BLOCK):
        search.through_block(root, first, min(first + BLOCK, w.size(1)))
    return search.finished()


class _Search:
    """The survivors of a batch of rows `[r, S]`, and the steps by which they came."""

    def __init__(self, w: Tensor, states: int, prices: BitPrices):
        following, offset = (table.to(w.device) for table in transitions(states))
        self.base, self.lengths, self.widths = w.clone(), prices.lengths, prices.widths()
        self.offset = offset.to(w)[:, None] / 2
        # Two branches enter every state; they come in the order of the states that they leave.
        self.entering = following.flatten().argsort(stable=True).view(states, 2)
        self.cost = w.new_full((w.size(0), states), torch.inf)
        # A decoder begins every row in state 0.
        self.cost[:, 0] = 0.0
        self.codes = torch.empty(w.shape, dtype=torch.int8, device=w.device)
        self.first, self.trail = 0, list[tuple[Tensor, Tensor, Tensor]]()  # start and steps of the undecided block

    def through_block(self, root: Tensor, first: int, last: int) -> None:
        """Take the survivors from column `first` to `last`, then decide the block before."""
        states = torch.arange(self.cost.size(1), device=root.device).expand(self.cost.shape)
        _, errors, _ = self._traced(states, self.trail)
        left = self.base[:, None, first:last] - errors @ root[self.first : first, first:last]
        trail = []
        for j in range(first, last):
            came_from, codes, errors = self._column(left[:, :, j - first], root[j, j], j)
            # Every survivor takes over the targets of the path that it continues.
            left = left.gather(1, came_from[:, :, None].expand(left.shape))
            left[:, :, j - first + 1 :] -= errors[:, :, None] * root[j, j + 1 : last]
            trail.append((came_from, codes, errors))
        best = self.cost.argmin(1, keepdim=True)
        self._decide(best, trail, root, last)
        # Costs are kept relative to the best, so that long rows lose no precision.
        self.cost -= self.cost.gather(1, best)
        self.first, self.trail = first, trail

    def _column(self, target: Tensor, diagonal: Tensor, j: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return for every state `[r, S]` the one before it, the code of the step and its weighted error."""
        parity = torch.arange(2, device=target.device).to(target)
        at = target[:, :, None] - self.offset
        codes = torch.round((at - parity) / 2).clamp(-63, 63) * 2 + parity
        errors = (target[:, :, None] - (codes + self.offset)) / diagonal
        lengths = self.lengths[self.widths[:, j]]  # [r, 2, 256]
        price = lengths[:, (2 * self.offset[:, 0]).long()].gather(2, codes.long() + 128)  # [r, S, 2]
        costs = (self.cost[:, :, None] + (errors * errors + price)).flatten(1)[:, self.entering]  # [r, S, 2]
        self.cost, chosen = costs.min(2)
        # The first of equally cheap branches is taken, whatever the device would choose.
        chosen = torch.where(costs[:, :, 0] == costs[:, :, 1], 0, chosen)
        branch = self.entering.expand(*costs.shape).gather(2, chosen[:, :, None])[:, :, 0]
        return branch // 2, codes.flatten(1).gather(1, branch), errors.flatten(1).gather(1, branch)

    def _traced(self, state: Tensor, trail: list[tuple[Tensor, Tensor, Tensor]]) -> tuple[Tensor, Tensor, Tensor]:
        """Return codes and errors `[r, n, columns]` of the paths that end in `state` `[r, n]`, and where they began."""
        codes, errors = [], []
        for came_from, code, error in reversed(trail):
            codes.append(code.gather(1, state))
            errors.append(error.gather(1, state))
            state = came_from.gather(1, state)
        empty = self.base.new_zeros(*state.shape, 0)
        codes, errors = ([e[:, :, None] for e in reversed(found)] for found in (codes, errors))
        return torch.cat([empty, *codes], 2), torch.cat([empty, *errors], 2), state

    def _decide(self, best: Tensor, trail: list[tuple[Tensor, Tensor, Tensor]], root: Tensor, last: int) -> None:
        """Write the codes of the block before `trail`, and pass its errors on to the columns from `last` on."""
        states = torch.arange(self.cost.size(1), device=root.device).expand(self.cost.shape)
        _, _, ancestors = self._traced(states, trail)
        ancestor = ancestors.gather(1, best)
        self.cost = self.cost.masked_fill(ancestors != ancestor, torch.inf)
        if self.trail:
            codes, errors, _ = self._traced(ancestor, self.trail)
            end = self.first + len(self.trail)
            self.codes[:, self.first : end] = codes[:, 0].to(torch.int8)
            self.base[:, last:] -= errors[:, 0] @ root[self.first : end, last:]

    def finished(self) -> Tensor:
        """Decide what is left, and return the codes int8 `[r, c]`."""
        if self.trail:
            codes, _, _ = self._traced(self.cost.argmin(1, keepdim=True), self.trail)
            self.codes[:, self.first :] = codes[:, 0].to(torch.int8)
        return self.codes
