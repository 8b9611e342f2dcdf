"""`golf report` without the installed command: `python scripts/report.py`."""

import functools
import sys

from golf.commands.cli import run_command

main = functools.partial(run_command, "report")

if __name__ == "__main__":
    sys.exit(main())
