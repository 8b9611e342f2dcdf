"""`golf power` without the installed command: `python scripts/power.py`."""

import functools
import sys

from golf.commands.cli import run_command

main = functools.partial(run_command, "power")

if __name__ == "__main__":
    sys.exit(main())
