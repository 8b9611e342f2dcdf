"""`golf dashboard` without the installed command: `python scripts/dashboard.py`."""

import functools
import sys

from golf.commands.cli import run_command

main = functools.partial(run_command, "dashboard")

if __name__ == "__main__":
    sys.exit(main())
