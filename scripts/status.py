"""`golf status` without the installed command: `python scripts/status.py`."""

import functools
import sys

from golf.commands.cli import run_command

main = functools.partial(run_command, "status")

if __name__ == "__main__":
    sys.exit(main())
