"""`golf inspect` without the installed command: `python scripts/inspect_artifact.py`."""

import functools
import sys

from golf.commands.cli import run_command

main = functools.partial(run_command, "inspect")

if __name__ == "__main__":
    sys.exit(main())
