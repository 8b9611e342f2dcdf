"""`golf import` without the installed command: `python scripts/import_runs.py`."""

import functools
import sys

from golf.commands.cli import run_command

main = functools.partial(run_command, "import")

if __name__ == "__main__":
    sys.exit(main())
