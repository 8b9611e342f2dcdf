"""The compiled Viterbi search of `trellis_rounding`, row by row; the batched one there is its slow definition.

Everything is one file, because numba's cache notices changes in no other file.
"""

from __future__ import annotations

import numpy as np

from golf.artifact.compiled import compiled


@compiled
def subtract_multiple(target, source, factor):
    """Subtract `factor` times a vector from another."""
    for k in range(len(target)):
        target[k] -= source[k] * factor


@compiled
def trace(came_from, errors, state, found):
    """Set `found` to the errors of the path that ends in `state`, and return the state that it began in."""
    for j in range(len(found) - 1, -1, -1):
        found[j] = errors[j, state]
        state = came_from[j, state]
    return state


@compiled
def step_column(cost, next_cost, target, diagonal, following, offset, lengths, came_from, codes, errors):
    """Extend the survivors `[S]` by one column: the best branch into every state, of equal ones the first."""
    next_cost[:] = np.inf
    came_from[:] = 0
    for state in range(len(cost)):
        # No path ends in this state, or its survivor was dropped.
        if cost[state] == np.inf:
            continue
        half = offset[state] * 0.5
        at = target[state] - half
        for parity in range(2):
            # Codes of one parity are two apart; the bounds keep them within eight bits.
            code = np.int64(min(max(np.rint((at - parity) / 2), -63.0), 63.0)) * 2 + parity
            error = (target[state] - (code + half)) / diagonal
            # Added in the order of `trellis_rounding`, so that both find the same codes to the last bit.
            total = cost[state] + (error * error + lengths[offset[state], code + 128])
            end = following[state, parity]
            if total < next_cost[end]:
                next_cost[end] = total
                came_from[end], codes[end], errors[end] = state, code, error


@compiled
def decide(came_from, codes, state, out):
    """Write the codes of the path that ends in `state`."""
    for j in range(len(out) - 1, -1, -1):
        out[j] = codes[j, state]
        state = came_from[j, state]


@compiled
def round_rows(w, widths, out, root, following, offset, lengths, block):
    """Set `out` int8 `[r, c]` to the codes of `w` float64 `[r, c]`, which is in steps. `lengths` are the prices."""
    columns, states = w.shape[1], len(offset)
    came_from = np.zeros((2, block, states), np.int64)  # for the block before and this one
    codes = np.zeros((2, block, states), np.int64)
    errors = np.zeros((2, block, states))
    left, moved = np.zeros((states, block)), np.zeros((states, block))
    found = np.zeros(block)
    cost, next_cost = np.zeros(states), np.zeros(states)
    for row in range(len(w)):
        base = w[row].copy()
        cost[:] = np.inf
        # A decoder begins every row in state 0.
        cost[0] = 0.0
        before = 0  # columns of the block before
        for first in range(0, columns, block):
            last = min(first + block, columns)
            for state in range(states):
                # The block before is not decided yet, so each survivor brings errors of its own from there.
                left[state, : last - first] = base[first:last]
                trace(came_from[0], errors[0], state, found[:before])
                for i in range(before):
                    subtract_multiple(left[state, : last - first], root[first - before + i, first:last], found[i])
            for j in range(last - first):
                step_column(
                    cost, next_cost, left[:, j], root[first + j, first + j], following, offset,
                    lengths[widths[row, first + j]], came_from[1, j], codes[1, j], errors[1, j],
                )  # fmt: skip
                for state in range(states):
                    moved[state, j + 1 : last - first] = left[came_from[1, j, state], j + 1 : last - first]
                    subtract_multiple(
                        moved[state, j + 1 : last - first], root[first + j, first + j + 1 : last], errors[1, j, state]
                    )
                # Every survivor has taken over the targets of the path that it continues.
                left, moved = moved, left
                cost, next_cost = next_cost, cost
            # The block before is decided by the best survivor. Those that disagree with it on that block are dropped.
            best = np.argmin(cost)
            least = cost[best]
            ancestor = trace(came_from[1], errors[1], best, found[: last - first])
            for state in range(states):
                if trace(came_from[1], errors[1], state, found[: last - first]) != ancestor:
                    cost[state] = np.inf
                # Costs are kept relative to the least, so that long rows lose no precision.
                cost[state] -= least
            decide(came_from[0], codes[0], ancestor, out[row, first - before : first])
            # Errors that are decided are the same for all survivors, so they go into the row itself.
            trace(came_from[0], errors[0], ancestor, found[:before])
            for i in range(before):
                subtract_multiple(base[last:], root[first - before + i, last:], found[i])
            before = last - first
            came_from[0], codes[0], errors[0] = came_from[1], codes[1], errors[1]
        decide(came_from[0], codes[0], np.argmin(cost), out[row, columns - before :])
