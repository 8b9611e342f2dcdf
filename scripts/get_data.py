"""`golf data get` without the installed command: `python scripts/get_data.py`."""

import functools
import sys

from golf.commands.cli import run_command

main = functools.partial(run_command, "data get")

if __name__ == "__main__":
    sys.exit(main())
