"""What number formats cost one trained checkpoint: `python scripts/quant_gap.py RUN [presets…]`.

RUN is a run folder. Each preset is a name from conf/quant (all of them if none is given), or a name with overrides in
quotes: "int6_mixed quant.scale_floor=eps". Every one is packed, unpacked and scored in float32 against the weights
before quantization on the same batches; ± is the standard error of the paired difference. Nothing is trained.
"""

import argparse
import dataclasses
import json
import os
import sys
from pathlib import Path

from golf.errors import GolfError
from golf.jobs.launch.process import tune_allocator
from golf.run.folder import RunFolder
from golf.training.loop.quant_gap import ENOUGH_TOKENS, gaps_of_run, print_gaps


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a run folder, multirun/<name>-<variant>/seed<k>")
    parser.add_argument("presets", nargs="*", help="of conf/quant, with overrides in quotes")
    parser.add_argument(
        "--tokens", type=int, default=ENOUGH_TOKENS, help="to score (default: %(default)s; 0: the whole split)"
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    arguments = parser.parse_args()
    tune_allocator()
    try:
        gaps = gaps_of_run(RunFolder(arguments.run), arguments.presets, tokens=arguments.tokens)
        if arguments.json:
            print(json.dumps([dataclasses.asdict(gap) for gap in gaps], indent=2))
        else:
            print_gaps(gaps)
    except GolfError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    sys.exit(main())
