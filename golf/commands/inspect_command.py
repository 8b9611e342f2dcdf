"""Show bytes, bits and quantization error of every tensor.

    golf inspect RUN/artifact.golf

FILE is an artifact.golf, the folder of a run, or a public `final_model.*.ptz` (zlib, zstd or lzma). Weights before
quantization are read from the file's own run folder. A format is the narrowest that holds the codes; with scales of k
standard deviations it is narrower than its name in the configuration. Entropy is order 0, in bits a weight. Coded bytes
are exact for golf's own coder. Byte codecs compress all tensors together, so their bytes are shared out by entropy. The
error is RMS(w - ŵ) / RMS(w), with the low-rank factors (lqer_a, lqer_b) added.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

from golf.commands.parsing import CommandParser
from golf.errors import GolfError

if TYPE_CHECKING:
    from golf.artifact.inspection import InspectedTensor, Inspection

COLUMNS = (
    *("tensor", "shape", "narrowest format", "parameters", "stored"),
    *("entropy bits", "coded bits", "coded bytes", "error"),
)
LEGEND = "narrowest format: the narrowest that holds the codes; the configuration's can be wider"


def parser() -> CommandParser:
    """Return the parser of `golf inspect`."""
    made = CommandParser("inspect", __doc__)
    made.add_argument("file", type=Path, help="artifact to inspect")
    weights = "weights before quantization (default: those of the run folder)"
    made.add_argument("--weights", type=Path, metavar="FILE", help=weights)
    made.add_argument("--classes", action="store_true", help="show totals by class only")
    made.add_argument("--json", action="store_true", help="print JSON for programs")
    return made


def main(arguments: list[str]) -> int:
    """Print the table of tensors."""
    args = parser().parse_intermixed_args(arguments)
    from golf.artifact.inspection import inspect_file
    from golf.run.folder import RunFolder
    from golf.training.model.weights import read_weights

    # A run's folder means its artifact.
    file = RunFolder(args.file).artifact if args.file.is_dir() else args.file
    beside = RunFolder(file.parent).weights
    path = args.weights or (beside if beside.exists() else None)
    if args.weights and not args.weights.is_file():
        raise GolfError(f"{args.weights} does not exist: give --weights a .safetensors or .pt file.")
    inspection = inspect_file(file, read_weights(path) if path else None)
    if args.json:
        print(json.dumps(dataclasses.asdict(inspection), indent=2))
    else:
        _print_table(inspection, args.classes)
    return 0


def _print_table(inspection: Inspection, classes_only: bool) -> None:
    from rich.table import Table

    from golf.artifact.inspection import totals_by_class
    from golf.report.summary import console

    table = Table(title=f"{inspection.layout}, {inspection.file_bytes:,} bytes", title_justify="left")
    for column in COLUMNS:
        table.add_column(column, justify="left" if column in COLUMNS[:3] else "right")
    for row in () if classes_only else inspection.tensors:
        table.add_row(*_cells(row))
    table.add_section()
    for row in totals_by_class(inspection.tensors):
        table.add_row(*_cells(row))
    # Without a terminal rich takes 80 columns, which cuts this table.
    console(plain_width=150).print(table)
    over = inspection.file_bytes / max(inspection.entropy_bytes, 1) - 1
    print(LEGEND)
    print(f"order-0 entropy {inspection.entropy_bytes:,.0f} bytes; the file is {over:+.2%} from it")


def _cells(row: InspectedTensor) -> list[str]:
    params = max(row.params, 1)
    entropy, coded = f"{row.entropy_bits / params:.3f}", f"{8 * row.coded_bytes / params:.3f}"
    error = "–" if row.error is None else f"{row.error:.3g}"
    shape = "×".join(map(str, row.shape))
    sizes = (f"{row.params:,}", f"{row.stored_bytes:,}", entropy, coded, f"{row.coded_bytes:,.0f}", error)
    return [row.name, shape, row.format, *sizes]
