"""Show bytes, bits and quantization error of every tensor.

    golf inspect RUN/artifact.golf

FILE is an artifact.golf or the folder of a run. Weights before quantization are read from the file's own run folder. A
format is the narrowest that holds the codes; with scales of k standard deviations it is narrower than its name in the
configuration. Entropy is order 0, in bits a weight. Coded bytes are exact for golf's own coder. Byte codecs compress
all tensors together, so their bytes are shared out by entropy. The error is RMS(w - ŵ) / RMS(w), with the low-rank
factors (lqer_a, lqer_b) added.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from golf.commands.parsing import CommandParser
from golf.errors import GolfError
from golf.words import answer

if TYPE_CHECKING:
    from golf.lab.artifacts.inspection import InspectedTensor, Inspection
    from golf.lab.report.table import Table

LEGEND = "narrowest format: the narrowest that holds the codes; the configuration's can be wider"


def main(arguments: list[str]) -> int:
    """Print the table of tensors."""
    args = CommandParser("inspect", __doc__).parse_intermixed_args(arguments)
    from golf.lab.artifacts.inspection import inspect_file
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
        print(answer(inspection))
    else:
        from golf.lab.report.table import render

        print(render(_table(inspection), "text"), end="")
    return 0


def _table(inspection: Inspection) -> Table:
    """Return the table of tensors and classes, whose narrow forms keep bytes and bits."""
    from golf.lab.artifacts.inspection import totals_by_class
    from golf.lab.report.table import Column, Table

    columns = (
        Column("tensor", "tensor", is_text=True),
        Column("shape", "shape", is_text=True, spare=4),
        Column("format", "narrowest format", is_text=True, spare=3),
        Column("params", "parameters", "{:,}".format, spare=1),
        Column("stored", "stored", "{:,}".format, spare=5),
        Column("entropy_bits", "entropy bits", "{:.3f}".format, spare=2),
        Column("coded_bits", "coded bits", "{:.3f}".format),
        Column("coded_bytes", "coded bytes", "{:,.0f}".format),
        Column("error", "error", "{:.3g}".format, spare=6),
    )
    tensors, classes = inspection.tensors, totals_by_class(inspection.tensors)
    over = inspection.file_bytes / max(inspection.entropy_bytes, 1) - 1
    entropy = f"order-0 entropy {inspection.entropy_bytes:,.0f} bytes; the file is {over:+.2%} from it"
    title = f"{inspection.layout}, {inspection.file_bytes:,} bytes"
    return Table(columns, [_row(t) for t in (*tensors, *classes)], title, (LEGEND, entropy), totals=len(classes))


def _row(tensor: InspectedTensor) -> dict[str, Any]:
    params = max(tensor.params, 1)
    return vars(tensor) | {
        "tensor": tensor.name,
        "shape": "×".join(map(str, tensor.shape)),
        "stored": tensor.stored_bytes,
        "entropy_bits": tensor.entropy_bits / params,
        "coded_bits": 8 * tensor.coded_bytes / params,
    }
