"""Measure what number formats cost one trained checkpoint.

    golf quant-gap RUN
    golf quant-gap RUN int8 "int6_mixed quant.scale_floor=eps"

RUN is a run folder. A preset is a name from conf/quant, or a name with overrides in quotes; the default is all names.
Each preset is packed, unpacked and scored in float32 against the weights before quantization on the same batches. The
number after ± is the standard error of the paired difference.
Nothing is trained.
"""

from __future__ import annotations

import os

from golf.commands.parsing import CommandParser
from golf.words import answer


def main(arguments: list[str]) -> int:
    """Print a row for each preset."""
    args = CommandParser("quant-gap", __doc__).parse_intermixed_args(arguments)
    # As golf/train.py sets it. OpenMP reads it when torch is imported.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    from golf.lab.artifacts.quant_gap import ENOUGH_TOKENS, gaps_of_run, print_gaps
    from golf.run.folder import RunFolder
    from golf.system import tune_allocator

    tune_allocator()
    tokens = ENOUGH_TOKENS if args.tokens is None else args.tokens
    gaps = gaps_of_run(RunFolder(args.run), args.presets, tokens=tokens)
    if args.json:
        print(answer(list(gaps)))
    else:
        print_gaps(gaps)
    return 0
