"""`golf quant-gap` without the installed command: `python scripts/quant_gap.py`."""

import functools
import sys

from golf.commands.cli import run_command

main = functools.partial(run_command, "quant-gap")

if __name__ == "__main__":
    sys.exit(main())
