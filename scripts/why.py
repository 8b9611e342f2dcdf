"""`golf why` without the installed command: `python scripts/why.py`."""

import functools
import sys

from golf.commands.cli import run_command

main = functools.partial(run_command, "why")

if __name__ == "__main__":
    sys.exit(main())
