"""`golf cancel` without the installed command: `python scripts/cancel.py`."""

import functools
import sys

from golf.commands.cli import run_command

main = functools.partial(run_command, "cancel")

if __name__ == "__main__":
    sys.exit(main())
