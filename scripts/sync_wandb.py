"""`golf sync` without the installed command: `python scripts/sync_wandb.py`."""

import functools
import sys

from golf.commands.cli import run_command

main = functools.partial(run_command, "sync")

if __name__ == "__main__":
    sys.exit(main())
