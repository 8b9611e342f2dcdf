"""`golf submit` without the installed command: `python scripts/submit.py`."""

import functools
import sys

from golf.commands.cli import run_command

main = functools.partial(run_command, "submit")

if __name__ == "__main__":
    sys.exit(main())
