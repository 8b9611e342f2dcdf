"""`golf plan` without the installed command: `python scripts/plan.py`."""

import functools
import sys

from golf.commands.cli import run_command

main = functools.partial(run_command, "plan")

if __name__ == "__main__":
    sys.exit(main())
