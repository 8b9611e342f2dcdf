"""What an artifact spends its bytes on: `python scripts/inspect_artifact.py FILE [--weights FILE]`.

FILE is an artifact.golf or a public `final_model.*.ptz` (zlib, zstd or lzma). Weights before quantization are found
beside it in a run folder. A format is the narrowest that holds the codes, which with scales of k deviations is less
than its name in the configuration. Entropy is order 0, in bits a weight; coded bytes are the file's, counted for golf's
own coder and else shared out by entropy, since byte codecs compress all tensors together; error is RMS(w - ŵ) / RMS(w)
with low-rank factors (lqer_a, lqer_b) added.
"""

import argparse
import dataclasses
import json
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from golf.artifact.inspection import InspectedTensor, Inspection, inspect_file, totals_by_class
from golf.errors import GolfError
from golf.run.folder import RunFolder
from golf.training.model.weights import read_weights

COLUMNS = ("tensor", "shape", "format", "parameters", "stored", "entropy bits", "coded bits", "coded bytes", "error")


def print_table(inspection: Inspection, classes_only: bool) -> None:
    table = Table(title=f"{inspection.layout}, {inspection.file_bytes:,} bytes", title_justify="left")
    for column in COLUMNS:
        table.add_column(column, justify="left" if column in COLUMNS[:3] else "right")
    for row in () if classes_only else inspection.tensors:
        table.add_row(*cells(row))
    table.add_section()
    for row in totals_by_class(inspection.tensors):
        table.add_row(*cells(row))
    Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 150).print(table)
    over = inspection.file_bytes / max(inspection.entropy_bytes, 1) - 1
    print(f"order-0 entropy {inspection.entropy_bytes:,.0f} bytes; the file is {over:+.2%} from it")


def cells(row: InspectedTensor) -> list[str]:
    params = max(row.params, 1)
    entropy, coded = f"{row.entropy_bits / params:.3f}", f"{8 * row.coded_bytes / params:.3f}"
    error = "–" if row.error is None else f"{row.error:.3g}"
    shape = "×".join(map(str, row.shape))
    sizes = (f"{row.params:,}", f"{row.stored_bytes:,}", entropy, coded, f"{row.coded_bytes:,.0f}", error)
    return [row.name, shape, row.format, *sizes]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--weights", type=Path, help="before quantization (default: those of the run folder)")
    parser.add_argument("--classes", action="store_true", help="totals by class only")
    parser.add_argument("--json", action="store_true", help="for programs")
    arguments = parser.parse_args()
    beside = RunFolder(arguments.file.parent).weights
    path = arguments.weights or (beside if beside.exists() else None)
    try:
        if arguments.weights and not arguments.weights.is_file():
            raise GolfError(f"{arguments.weights} does not exist: give --weights a .safetensors or .pt file.")
        inspection = inspect_file(arguments.file, read_weights(path) if path else None)
    except GolfError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if arguments.json:
        print(json.dumps(dataclasses.asdict(inspection), indent=2))
    else:
        print_table(inspection, arguments.classes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
