"""The entropy coder `context` for quantized weights: codes and row scales of a model to one stream, and back.

Tensors come in the order of the state dict. Tensors of one role (names without layer numbers) share their statistics.
Context mixing after PAQ (Mahoney 2005), with normal distributions in place of histories. docs/benchmarks.md has the
bytes that each part saves, and what was tried and dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from golf.artifact.codec.context_kernel import (
    DECODING,
    END,
    HIGH,
    LEVELS,
    LOW,
    ONE,
    POSITION,
    UNIT_LEVEL,
    VALUE,
    WIDTHS,
    Coder,
    Grid,
    Memory,
    code_matrix,
    code_number,
    code_scales,
)
from golf.artifact.codec.context_tables import TABLES
from golf.artifact.header import DTYPES, Entry
from golf.artifact.quant.columns import LARGEST_CODE as LARGEST_COLUMN_CODE
from golf.artifact.quant.formats import CodedTensor
from golf.artifact.quant.trellis import path_order, transitions

MAX_ROLES = 64  # roles with statistics of their own; further roles share one set
MAX_PREDICTED_COLUMNS = 1024  # a predictor costs columns²/2 multiplications a row and columns³/6 a fit
WORTH_PREDICTING_BITS = 0.02  # saving per weight, in bits, from which a matrix gets a predictor
FIRST_WEIGHTS = (0.3, 0.3, 0.2, 0.2)
REGISTER_BYTES = 4
SPARE_BYTES = 4096  # buffer beyond two bytes a code and four a scale; a matrix that needs more is coded again


@dataclass
class CodeMatrix:
    """Codes of one tensor and the bits of its scales. A decoder starts from zeros."""

    role: str
    codes: np.ndarray  # int8 [rows, columns]; on a trellis with the columns in the order of its path
    scales: np.ndarray  # int64: the bits of float16 [rows], or both halves of one float32
    columns: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))  # codes of the columns' steps, or none
    states: int = 1

    @property
    def has_columns(self) -> bool:
        return self.columns.size > 0


def encode(coded: Iterable[tuple[Entry, CodedTensor]]) -> bytes:
    """Return the stream of all tensors. Takes about 0.3 s per million codes on one core, compilation apart."""
    return encode_matrices(_matrix(entry, tensor) for entry, tensor in coded)


def encode_matrices(matrices: Iterable[CodeMatrix]) -> bytes:
    """Return the stream of codes and scales without tensors."""
    return b"".join(_coded(matrices))


def coded_bytes(coded: Iterable[tuple[Entry, CodedTensor]]) -> list[int]:
    """Return the bytes of the stream per tensor, scales included. The coder's register counts for the last one."""
    *chunks, register = _coded(_matrix(entry, tensor) for entry, tensor in coded)
    sizes = [len(chunk) for chunk in chunks]
    return [*sizes[:-1], sizes[-1] + len(register)] if sizes else []


def _coded(matrices: Iterable[CodeMatrix]) -> Iterator[bytes]:
    """Yield the stream matrix by matrix, and the coder's register at the end."""
    coder = _new_coder(0)
    for matrix, memory in _with_memory(matrices):
        settings = _settings(matrix)
        capacity = SPARE_BYTES + 2 * matrix.codes.size + 4 * (matrix.scales.size + matrix.columns.size)
        while True:
            # Registers and statistics are copied, so that a matrix for which the buffer is too small is coded again
            # from the start.
            trial = Coder(coder.state.copy(), np.empty(capacity, np.uint8), TABLES)
            trial.state[END] = capacity
            learned = Memory(*(array.copy() for array in memory))
            _code(trial, learned, matrix, settings)
            # The position counts on behind the end of the buffer and so tells how much is needed.
            written = int(trial.state[POSITION])
            if written <= capacity:
                break
            capacity = 2 * written
        yield trial.stream[:written].tobytes()
        for array, news in zip(memory, learned, strict=True):
            array[...] = news
        # The registers go on from matrix to matrix, but each has a buffer of its own.
        trial.state[POSITION] = 0
        coder = trial
    # The decoder reads a register ahead, so one more has to follow the last bit; any number of the last interval would
    # do.
    yield int(coder.state[LOW]).to_bytes(REGISTER_BYTES, "big")


def decode(stream: bytes, entries: Sequence[Entry]) -> dict[str, CodedTensor]:
    """Decode the tensors of these entries. Raises `ValueError` unless the stream ends with the last tensor."""
    coder = _new_coder(len(stream))
    coder.stream[:] = np.frombuffer(stream, np.uint8)
    coder.state[DECODING] = 1
    # A damaged stream may be shorter than the register. The check at the end finds that out.
    coder.state[VALUE] = int.from_bytes(stream[:REGISTER_BYTES].ljust(REGISTER_BYTES, b"\0"), "big")
    coder.state[POSITION] = REGISTER_BYTES
    decoded = {}
    for entry, (matrix, memory) in zip(entries, _with_memory(_blank(entry) for entry in entries), strict=True):
        # A decoder reads the settings from the stream, so those that it is given do not matter.
        _code(coder, memory, matrix, (0, 0, 0, 0))
        # Behind the end there are only zeros, from which nothing can be decoded.
        if coder.state[POSITION] > len(stream):
            break
        decoded[entry.name] = _tensor(entry, matrix)
    if coder.state[POSITION] != len(stream):
        raise ValueError("the coded weights do not end where their bytes do")
    return decoded


def _matrix(entry: Entry, tensor: CodedTensor) -> CodeMatrix:
    assert tensor.scale is not None
    # Scales are coded as whole numbers, their bits, so that they come back exactly.
    halves = tensor.scale.contiguous().flatten().view(torch.int16).numpy()
    data, columns = tensor.data.reshape(entry.matrix_shape), np.zeros(0, np.int64)
    if tensor.has_columns and tensor.columns is not None:
        columns = tensor.columns.numpy().astype(np.int64)
    # In this order the codes before each one tell its state, and so its offset.
    if tensor.states > 1:
        data = data[:, path_order(tensor.columns, data.size(1))]
    codes = np.array(data.numpy(), np.int8, order="C")
    return CodeMatrix(entry.role, codes, halves.astype(np.int64) & 0xFFFF, columns, tensor.states)


def _blank(entry: Entry) -> CodeMatrix:
    scales = np.zeros(entry.scale_shape[0] if entry.scale_shape else 2, np.int64)
    columns = np.zeros(entry.columns_count, np.int64)
    return CodeMatrix(entry.role, np.zeros(entry.matrix_shape, np.int8), scales, columns, entry.trellis_states)


def _tensor(entry: Entry, matrix: CodeMatrix) -> CodedTensor:
    scale = torch.from_numpy((matrix.scales & 0xFFFF).astype(np.uint16)).view(entry.scale_dtype).view(entry.scale_shape)
    data = torch.from_numpy(matrix.codes)
    columns = torch.from_numpy(matrix.columns.astype(np.int8)) if entry.has_columns else None
    if entry.trellis_states > 1:
        data = data[:, path_order(columns, data.size(1)).argsort()]
    dtype, shape = DTYPES[entry.dtype], entry.shape
    return CodedTensor(data.view(shape), scale, dtype, entry.is_rotated, columns, entry.trellis_states, entry.own)


def _new_coder(size: int) -> Coder:
    state = np.zeros(6, np.int64)
    state[HIGH] = 0xFFFFFFFF
    state[END] = size
    return Coder(state, np.empty(size, np.uint8), TABLES)


def _with_memory(matrices: Iterable[CodeMatrix]) -> Iterator[tuple[CodeMatrix, Memory]]:
    memories: dict[str, Memory] = {}
    last = _new_memory()
    for matrix in matrices:
        if matrix.role not in memories and len(memories) < MAX_ROLES:
            memories[matrix.role] = _new_memory()
        yield matrix, memories.get(matrix.role, last)


def _new_memory() -> Memory:
    first = np.array([int(weight * ONE) for weight in FIRST_WEIGHTS], np.int64)
    by_width, by_neighbours, scale_counters, column_counters, codes_seen = (
        np.zeros(shape, np.int64) for shape in ((2 * WIDTHS, 256), (2 * WIDTHS, 256), 64, 64, 1)
    )
    weights = np.tile(first, (256, 1)), np.tile(first, (2 * WIDTHS, 1))
    return Memory(by_width, by_neighbours, *weights, scale_counters, column_counters, codes_seen)


def _code(coder: Coder, memory: Memory, matrix: CodeMatrix, settings: tuple[int, int, int, int]) -> None:
    """Write a matrix with its settings, or read both."""
    lowest, highest, level, predicts = (
        int(code_number(coder, value, bits)) for value, bits in zip(settings, (8, 8, 10, 1), strict=True)
    )
    # The settings may come from a hostile file, and they index tables.
    if lowest > highest or level >= LEVELS or predicts > _may_predict(matrix.codes.shape):
        raise ValueError("a coded tensor has impossible settings")
    code_scales(coder, memory.scale_counters, matrix.scales)
    if matrix.has_columns:
        _code_columns(coder, memory, matrix)
    code_matrix(coder, memory, _grid(matrix), matrix.codes, lowest - 128, highest - 128, level, predicts)


def _code_columns(coder: Coder, memory: Memory, matrix: CodeMatrix) -> None:
    # The coder of scales takes numbers without a sign.
    matrix.columns += LARGEST_COLUMN_CODE
    code_scales(coder, memory.column_counters, matrix.columns)
    matrix.columns -= LARGEST_COLUMN_CODE
    # A hostile file may hold any number of 16 bits here.
    np.clip(matrix.columns, -LARGEST_COLUMN_CODE, LARGEST_COLUMN_CODE, out=matrix.columns)


def _grid(matrix: CodeMatrix) -> Grid:
    """Return what the coder knows of a matrix before its codes. The columns' steps come in the order of the codes."""
    width = matrix.codes.shape[1]
    steps = matrix.columns if matrix.has_columns else np.zeros(width, np.int64)
    if matrix.states == 1:
        return Grid(steps, np.zeros((1, 2), np.int64), np.zeros(1, np.int64))
    following, offset = transitions(matrix.states)
    order = path_order(torch.from_numpy(matrix.columns) if matrix.has_columns else None, width)
    return Grid(steps[order.numpy()], following.numpy(), offset.numpy())


def _settings(matrix: CodeMatrix) -> tuple[int, int, int, int]:
    """Return the smallest and largest code plus 128, the level of the mean square, and 1 if columns are predicted.

    The mean square is in steps of the rows.
    """
    codes = matrix.codes
    if not codes.size:
        return 128, 128, UNIT_LEVEL, 0
    squares = np.square(codes, dtype=np.float32)
    if matrix.has_columns:
        squares = squares * np.exp2(_grid(matrix).half_octaves / 2)
    # The bound keeps a matrix of zeros from a logarithm of zero.
    mean_square = max(float(squares.mean(dtype=np.float64)), 2.0**-8)
    level = min(round(32 * np.log2(mean_square)) + UNIT_LEVEL, LEVELS - 1)
    return int(codes.min()) + 128, int(codes.max()) + 128, level, int(_predictable_bits(codes) > WORTH_PREDICTING_BITS)


def _may_predict(shape: tuple[int, ...]) -> bool:
    rows, columns = shape
    return 2 <= columns <= MAX_PREDICTED_COLUMNS and rows >= 2 * columns


def _predictable_bits(codes: np.ndarray) -> float:
    """Estimate the bits per weight that a predictor saves: fitted on every other row, judged on the rows between."""
    if not _may_predict(codes.shape):
        return 0.0
    known, unknown = codes[::2].astype(np.float64), codes[1::2].astype(np.float64)
    # Columns that are zero or depend on each other would leave no decomposition without the ridge.
    ridge = np.eye(codes.shape[1]) * (np.square(known).mean() * codes.shape[1] + 1e-6)
    lower = np.linalg.cholesky(known.T @ known + ridge)
    # With a diagonal of ones the triangular solve leaves of each column what the columns before it do not predict.
    surprises = np.linalg.solve(lower / np.diag(lower), unknown.T)
    before, after = np.abs(unknown).mean(1), np.abs(surprises).mean(0)
    return float(np.log2((before + 1e-6) / (after + 1e-6)).mean())
