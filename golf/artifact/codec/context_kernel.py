"""The compiled arithmetic of the entropy coder: codes and scales to bits and back, one function for both directions.

A code is found by binary decisions "is it at least t?" along a tree that halves a normal distribution. The probability
of a decision is a logistic mix (as in PAQ) of four models: two normal distributions, whose widths follow the column's
energy with and without the row's, and two adaptive counters, one by width and one by the size of the neighbours. With a
predictor, the first distribution is centred on a linear prediction from the row's earlier columns, which uses the
covariance of the rows above. In tied embeddings that saves a quarter to half a bit per weight. The second is centred on
the column's mean.

All arithmetic is integer, so the bits are the same on every machine. A hostile file can reach any value here: clamp
before indexing and dividing. Everything is one file, because numba's cache notices changes in no other file.

Compiling takes about ten seconds, once. The result is cached beside this file, else in the user's cache folder or in
NUMBA_CACHE_DIR. Where no folder can be written, it lasts for the process.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from golf.artifact.compiled import compiled

ONE = 1 << 16  # probability one
MOST_LIKELY = ONE - 32  # largest probability of a bit
LEVELS = 960  # number of width levels, 1/32 octave of variance each
UNIT_LEVEL = 256  # level of variance 1
MAX_COUNT = 1023
LOW, HIGH, VALUE, POSITION, END, DECODING = range(6)  # indices of Coder.state
WIDTHS = 32  # contexts of a counter
NO_ROWS = 4  # rows of average energy that a column starts with
FIRST_FIT = 16  # rows before the first prediction
MAX_FIT_ROWS = 1 << 17  # rows in the covariance: their products, at most 127² each, fit 32 bits


class Tables(NamedTuple):
    """Lookup tables, see `context_tables`. As globals, a change to them would escape numba's cache."""

    logistic: np.ndarray
    logit: np.ndarray
    normal: np.ndarray
    octaves: np.ndarray
    inverse_width: np.ndarray
    reciprocal: np.ndarray


class Coder(NamedTuple):
    """A binary arithmetic coder of 32 bits: its registers and the bytes it writes or reads."""

    state: np.ndarray  # int64 [6]
    stream: np.ndarray  # uint8
    tables: Tables


class Memory(NamedTuple):
    """Statistics of the tensors of one role."""

    by_width: np.ndarray  # int64 [2 * WIDTHS, 256]: counters, probability << 10 | observations; 0 = none yet
    by_neighbours: np.ndarray  # int64 [2 * WIDTHS, 256]: the same; the second half is for codes at offset 1
    node_weights: np.ndarray  # int64 [256, 4]: weights of the four mixed models, 16 fractional bits
    width_weights: np.ndarray  # int64 [WIDTHS, 4]
    scale_counters: np.ndarray  # int64 [64]
    column_counters: np.ndarray  # int64 [64]
    codes_seen: np.ndarray  # int64 [1]


class Grid(NamedTuple):
    """The grids of a matrix: of columns by their steps, of codes by the state of a trellis."""

    half_octaves: np.ndarray  # int64 [columns]: variance of a step over that of the row's
    following: np.ndarray  # int64 [states, 2]: next state after an even and an odd code
    offset: np.ndarray  # int64 [states]: twice the distance of the grid from zero, in steps


class Columns(NamedTuple):
    """Statistics of a matrix's columns from the rows above, int64 `[columns]` each."""

    energy_a: np.ndarray  # summed squares of the distance from the prediction, 8 fractional bits
    energy_b: np.ndarray  # summed squares of the distance from the mean, 8 fractional bits
    sums: np.ndarray
    above: np.ndarray  # squares of the row above, 6 fractional bits, in steps of the row


class Predictor(NamedTuple):
    """A linear predictor of each column from the columns on its left."""

    covariance: np.ndarray  # int32 [columns, columns], upper triangle: sums of products
    factors: np.ndarray  # int32 [columns, columns]: what the error in one column adds to later predictions, see `fit`
    prediction: np.ndarray  # int32 [columns]: prediction of the current row, 18 fractional bits


@compiled
def code_bit(coder, probability, bit):
    """Write `bit`, or read and return one. `probability` is that of a one."""
    state, stream = coder.state, coder.stream
    low, high = state[LOW], state[HIGH]
    span = high - low
    middle = low + (span >> 16) * probability + (((span & 0xFFFF) * probability) >> 16)
    if state[DECODING]:
        bit = np.int64(state[VALUE] <= middle)
    if bit:
        high = middle
    else:
        low = middle + 1
    # A leading byte on which both ends of the interval agree is settled and leaves the registers.
    while (low ^ high) >> 24 == 0:
        position = state[POSITION]
        # Behind the end a decoder reads zeros, and a coder only counts, so that its caller can make room.
        inside = position < state[END]
        if state[DECODING]:
            byte = np.int64(stream[position]) if inside else np.int64(0)
            state[VALUE] = ((state[VALUE] << 8) & 0xFFFFFFFF) | byte
        elif inside:
            stream[position] = high >> 24
        state[POSITION] = position + 1
        low = (low << 8) & 0xFFFFFFFF
        high = ((high << 8) & 0xFFFFFFFF) | 255
    state[LOW], state[HIGH] = low, high
    return bit


@compiled
def code_number(coder, number, bits):
    """Write or read `bits` bits at even probability."""
    result = np.int64(0)
    for shift in range(bits - 1, -1, -1):
        result = (result << 1) | code_bit(coder, ONE >> 1, (number >> shift) & 1)
    return result


@compiled
def learned(reciprocal, counter, bit, limit):
    """Return the counter after one more observation. Its rate falls as 1/n until `limit` observations."""
    # A counter holds 22 bits of probability above 10 bits of count.
    probability, seen = counter >> 10, counter & 1023
    target = (1 << 22) - 1 if bit else 0
    probability += ((target - probability) * reciprocal[seen]) >> 16
    return (probability << 10) | min(seen + 1, limit)


@compiled
def code_counted(coder, counters, index, bit):
    """Write or read a bit by the probability of one counter, which learns from it."""
    counter = counters[index]
    if counter == 0:
        # A counter that has seen nothing stands for even odds.
        counter = np.int64(1) << 31
    # A bit of probability zero could not be coded.
    probability = min(max(counter >> 16, ONE - MOST_LIKELY), MOST_LIKELY)
    bit = code_bit(coder, probability, bit)
    counters[index] = learned(coder.tables.reciprocal, counter, bit, 60)
    return bit


@compiled
def code_difference(coder, counters, difference):
    """Write or read a signed number of up to 17 bits: its length and leading bit by counters, the rest at even odds."""
    # With one added, zero has a leading bit as well.
    size = abs(difference) + 1
    length = np.int64(0)
    while size >> (length + 1) > 0:
        length += 1
    found = np.int64(0)
    while found < 17 and code_counted(coder, counters, found, np.int64(length > found)):
        found += 1
    result = np.int64(1)
    for shift in range(found - 1, -1, -1):
        bit = (size >> shift) & 1
        # The lower half of the counters is for lengths, the upper half for the bit behind the leading one.
        leading = shift == found - 1
        bit = code_counted(coder, counters, 32 + found, bit) if leading else code_bit(coder, ONE >> 1, bit)
        result = (result << 1) | bit
    # Zero has no sign to code.
    if result == 1:
        return np.int64(0)
    return 1 - result if code_bit(coder, ONE >> 1, np.int64(difference < 0)) else result - 1


@compiled
def code_scales(coder, counters, scales):
    """Write or read numbers of 16 bits, such as those of float16 scales, each by its distance from the mean before."""
    mean = np.int64(0)
    for i in range(len(scales)):
        # A stream that ended early is given up here, and the caller sees its position.
        if coder.state[DECODING] and coder.state[POSITION] > coder.state[END]:
            return
        if i == 0:
            scales[0] = code_number(coder, scales[0], 16)
            mean = scales[0] << 8
            continue
        expected = (mean + 128) >> 8
        scales[i] = expected + code_difference(coder, counters, scales[i] - expected)
        # The mean is over all rows before, and over about the last sixteen once there are more.
        mean += ((scales[i] << 8) - mean) // min(i + 1, 16)


@compiled
def level_of(octaves, energy):
    """Return 32·log₂ of a positive number: the level of a variance with 8 fractional bits."""
    # Shifts and a table are used, because a floating-point logarithm may differ between machines.
    octave, rest = 0, energy
    for shift in (32, 16, 8, 4, 2, 1):
        if rest >> shift:
            rest >>= shift
            octave += shift
    mantissa = energy >> (octave - 8) if octave >= 8 else energy << (8 - octave)
    return (octave << 5) + octaves[mantissa & 255]


@compiled
def in_row_steps(energy, half_octaves):
    """Return `energy` in squared steps of the row instead of the column, whose steps are larger by `half_octaves`."""
    octaves = half_octaves >> 1
    scaled = energy << octaves if octaves >= 0 else energy >> -octaves
    # 181/128 is the square root of two: half an octave.
    return (scaled * 181) >> 7 if half_octaves & 1 else scaled


@compiled
def below(normal, code, mean, inverse_width, lowest):
    """Return the weight of all smaller codes: a normal distribution plus 1 per code, so that none is impossible."""
    # The border below a code lies half a step under it: 128 of 256. The table's middle is at 2048.
    z = ((((code << 8) - 128 - mean) * inverse_width) >> 16) + 2048
    return normal[min(max(z, 0), 4096)] + (code - lowest)


@compiled
def grow_tree(tables, lowest, highest, level, thresholds, children):
    """Fill the decision tree that halves a normal distribution of width `level` over `lowest` to `highest`."""
    normal, width = tables.normal, tables.inverse_width[level]
    # No more than 256 intervals can be open at a time.
    todo = np.empty((512, 3), np.int64)  # interval and the place in `children` that it hangs from
    todo[0] = lowest, highest, -1
    open_count, nodes = 1, 0
    while open_count > 0:
        open_count -= 1
        first, last, place = todo[open_count]
        if first == last:
            continue
        both = below(normal, first, 0, width, lowest) + below(normal, last + 1, 0, width, lowest)
        threshold, least = first + 1, np.int64(1) << 40
        for code in range(first + 1, last + 1):
            # The tree depends on settings alone, so that coder and decoder grow the same one.
            imbalance = abs(2 * below(normal, code, 0, width, lowest) - both)
            if imbalance < least:
                threshold, least = code, imbalance
        thresholds[nodes] = threshold
        if place >= 0:
            children[place >> 1, place & 1] = nodes
        todo[open_count] = first, threshold - 1, 2 * nodes
        todo[open_count + 1] = threshold, last, 2 * nodes + 1
        open_count += 2
        nodes += 1


@compiled
def mixed(weights, row, a, b, c, d):
    """Return the weighted sum of the models' logits."""
    total = weights[row, 0] * a + weights[row, 1] * b + weights[row, 2] * c + weights[row, 3] * d
    # The table of the logistic function has 2048 entries on either side.
    return min(max(total >> 16, -2047), 2047)


@compiled
def teach(weights, row, a, b, c, d, error):
    """Move the weights of the mix against the error."""
    weights[row, 0] += (a * error) >> 18
    weights[row, 1] += (b * error) >> 18
    weights[row, 2] += (c * error) >> 18
    weights[row, 3] += (d * error) >> 18


@compiled
def code_symbol(coder, memory, tree, lowest, highest, code, mean_a, level_a, mean_b, level_b, width, size):
    """Write or read one code. `width` and `size` (of the neighbours) are the counters' contexts."""
    thresholds, children = tree
    logistic, logit, normal, _, inverse_width, reciprocal = coder.tables
    inverse_a, inverse_b = inverse_width[level_a], inverse_width[level_b]
    under_a, under_b = (
        below(normal, lowest, mean_a, inverse_a, lowest),
        below(normal, lowest, mean_b, inverse_b, lowest),
    )
    over_a = below(normal, highest + 1, mean_a, inverse_a, lowest)
    over_b = below(normal, highest + 1, mean_b, inverse_b, lowest)
    seen = memory.codes_seen[0]
    memory.codes_seen[0] = seen + 1
    # The weights of the mix learn fast at first and more slowly as codes go by.
    rate = 3 + (24 << 12) // (4096 + (seen >> 4))
    first, last, node = lowest, highest, np.int64(0)
    while first < last:
        threshold = thresholds[node]
        at_a = below(normal, threshold, mean_a, inverse_a, lowest)
        at_b = below(normal, threshold, mean_b, inverse_b, lowest)
        # The share of the interval above the threshold, in 12 bits, which is the size of the table of logits.
        guess_a = min(max(((over_a - at_a) << 12) // (over_a - under_a), 1), 4094)
        guess_b = min(max(((over_b - at_b) << 12) // (over_b - under_b), 1), 4094)
        place = threshold + 128
        counter_c, counter_d = memory.by_width[width, place], memory.by_neighbours[size, place]
        # A counter without observations starts from what the distribution says.
        if counter_c == 0:
            counter_c = guess_a << 20
        if counter_d == 0:
            counter_d = guess_b << 20
        a, b, c, d = logit[guess_a], logit[guess_b], logit[counter_c >> 20], logit[counter_d >> 20]
        by_node = mixed(memory.node_weights, place, a, b, c, d)
        by_width = mixed(memory.width_weights, width, a, b, c, d)
        bit = code_bit(coder, logistic[((by_node + by_width) >> 1) + 2048], np.int64(code >= threshold))
        target = ONE if bit else 0
        # Each set of weights learns from the error of its own prediction, not of the average of both.
        teach(memory.node_weights, place, a, b, c, d, (target - logistic[by_node + 2048]) * rate)
        teach(memory.width_weights, width, a, b, c, d, (target - logistic[by_width + 2048]) * rate)
        memory.by_width[width, place] = learned(reciprocal, counter_c, bit, MAX_COUNT)
        memory.by_neighbours[size, place] = learned(reciprocal, counter_d, bit, MAX_COUNT)
        if bit:
            # The decision narrows the interval, and later probabilities are conditional on it.
            under_a, under_b, first = at_a, at_b, threshold
        else:
            over_a, over_b, last = at_a, at_b, threshold - 1
        node = children[node, bit]
    return first


@compiled
def fit(covariance, ridge, work, factors):
    """Compute L of covariance + ridge = L·D·Lᵀ, by columns, 14 fractional bits, without the diagonal."""
    size = len(factors)
    for j in range(size):
        for k in range(j + 1):
            work[k, j] = np.int64(covariance[k, j]) << 4
        work[j, j] += ridge
    for k in range(size):
        # A hostile file can make a pivot zero or negative, and it divides.
        pivot = max(work[k, k], 1)
        for j in range(k + 1, size):
            ratio = (work[k, j] << 20) // pivot
            factors[k, j] = min(max(ratio >> 6, -(1 << 17)), 1 << 17)
            if ratio:
                for m in range(j, size):
                    work[j, m] -= (ratio * work[k, m]) >> 20


@compiled
def add_multiple(target, source, factor, start):
    """Add `factor` times a row to another, from column `start` on, in 32 bits."""
    for k in range(start, len(target)):
        target[k] += source[k] * factor


@compiled
def add_outer(covariance, values):
    """Add the outer product of a row with itself, upper triangle."""
    for j in range(len(values)):
        if values[j]:
            add_multiple(covariance[j], values, np.int32(values[j]), j)


@compiled
def code_row(
    coder, memory, tree, columns, predictor, grid, codes, values, row, lowest, highest, level, average, predicts, fitted
):
    """Write or read row number `row` of a matrix, `codes` int8 `[columns]`; set `values` to their points."""
    octaves, prediction = coder.tables.octaves, predictor.prediction
    points = np.int64(2 if len(grid.offset) > 1 else 1)  # points of the trellis in a step
    state = np.int64(0)
    prediction[:] = 0
    row_energy, expected_energy = average, average
    left, further_left = np.int64(0), np.int64(0)
    for j in range(len(codes)):
        column_step = grid.half_octaves[j]
        offset = grid.offset[state]
        variance = columns.energy_a[j] // (NO_ROWS + row)
        level_a = level_of(octaves, variance)
        mean_a, mean_b, level_b = np.int64(0), np.int64(0), level_a
        if predicts:
            mean_a = min(max(np.int64(prediction[j]) >> 10, np.int64(-ONE)), np.int64(ONE))
            # Thirty rows of zeros count along, so that the mean of a few rows stays near zero.
            mean_b = (columns.sums[j] << 8) // (points * (row + 30))
            level_b = level_of(octaves, columns.energy_b[j] // (NO_ROWS + row))
        # A row that was wider so far than its columns promise is expected to stay so.
        level_a += level_of(octaves, row_energy) - level_of(octaves, expected_energy)
        level_a, level_b = min(max(level_a, 0), LEVELS - 1), min(max(level_b, 0), LEVELS - 1)
        width = min(max((level_a - level + 512) >> 5, 0), WIDTHS - 1)
        near = level_of(octaves, 2 * left + further_left + columns.above[j] + 16) + UNIT_LEVEL - level
        size = min(max(((near - 16 * column_step) >> 5) - 2, 0), WIDTHS - 1)
        code = code_symbol(
            coder, memory, tree, lowest, highest, np.int64(codes[j]), mean_a - 128 * offset, level_a,
            mean_b - 128 * offset, level_b, width + WIDTHS * offset, size + WIDTHS * offset,
        )  # fmt: skip
        codes[j] = code
        state = grid.following[state, code & 1]
        value = points * code + offset
        exact = (value << 8) // points
        values[j] = value
        energy = (exact - mean_a) ** 2 >> 8
        columns.energy_a[j] += energy
        row_energy += in_row_steps(energy, column_step)
        expected_energy += in_row_steps(variance, column_step)
        # The next columns and the row below read this as the size of their neighbours.
        further_left, left = left, in_row_steps(exact * exact >> 10, column_step)
        columns.above[j] = left
        if predicts:
            columns.energy_b[j] += (exact - mean_b) ** 2 >> 8
            columns.sums[j] += value
            if fitted:
                # The error of this column corrects the predictions of those on its right.
                error = np.int32((exact >> 4) - (prediction[j] >> 14))
                add_multiple(prediction, predictor.factors[j], error, j + 1)


@compiled
def code_matrix(coder, memory, grid, codes, lowest, highest, level, predicts):
    """Write or read `codes` int8 `[rows, columns]`, all from `lowest` to `highest`; stops where the bytes end early."""
    if lowest == highest:
        # The settings say it all: a constant matrix takes no bits of its own.
        codes[:] = lowest
        return
    rows, width = codes.shape
    tree = np.zeros(256, np.int64), np.full((256, 2), -1, np.int64)
    grow_tree(coder.tables, lowest, highest, level, tree[0], tree[1])
    inverse = coder.tables.inverse_width[level]
    average = max((ONE << 8) // inverse * ONE // inverse, np.int64(1))  # 8 bits behind the point
    start = np.empty(width, np.int64)
    for j in range(width):
        # Weights of all columns are taken to be alike until the rows above tell: finer steps have larger codes.
        start[j] = max(in_row_steps(NO_ROWS * average, -grid.half_octaves[j]), np.int64(1))
    columns = Columns(start, start.copy(), np.zeros(width, np.int64), np.zeros(width, np.int64))
    on_trellis = len(grid.offset) > 1
    side = width if predicts else 0
    square = (side, side)
    predictor = Predictor(np.zeros(square, np.int32), np.zeros(square, np.int32), np.zeros(width, np.int32))
    work = np.zeros(square, np.int64)
    values = np.empty(width, np.int16)
    # Points of a trellis are twice as many as codes, so that their products need two bits more.
    most_rows = MAX_FIT_ROWS >> 2 if on_trellis else MAX_FIT_ROWS
    next_fit = FIRST_FIT
    for row in range(rows):
        if coder.state[DECODING] and coder.state[POSITION] > coder.state[END]:
            return
        if predicts and row >= next_fit:
            fit(predictor.covariance, (average * width) >> (4 if on_trellis else 6), work, predictor.factors)
            # A fit costs the cube of the columns, so fits get rarer as rows come in.
            next_fit = max(row + 8, row * 5 // 4)
        code_row(
            coder, memory, tree, columns, predictor, grid, codes[row], values, row, lowest, highest, level, average,
            predicts, next_fit > FIRST_FIT,
        )  # fmt: skip
        if predicts and row < most_rows:
            add_outer(predictor.covariance, values)
