"""`golf gpu-check` without the installed command: `python scripts/gpu_check.py`."""

import functools
import sys

from golf.commands.cli import run_command

main = functools.partial(run_command, "gpu-check")

if __name__ == "__main__":
    sys.exit(main())
