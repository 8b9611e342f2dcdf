"""`golf from-env` without the installed command: `python scripts/from_env.py`."""

import functools
import sys

from golf.commands.cli import run_command

main = functools.partial(run_command, "from-env")

if __name__ == "__main__":
    sys.exit(main())
