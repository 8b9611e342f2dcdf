"""`golf board` without the installed command: `python scripts/board.py`."""

import functools
import sys

from golf.commands.cli import run_command

main = functools.partial(run_command, "board")

if __name__ == "__main__":
    sys.exit(main())
