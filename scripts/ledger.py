"""`golf ledger` without the installed command: `python scripts/ledger.py`."""

import functools
import sys

from golf.commands.cli import run_command

main = functools.partial(run_command, "ledger")

if __name__ == "__main__":
    sys.exit(main())
