"""`golf audit` without the installed command: `python scripts/audit_submission.py`."""

import functools
import sys

from golf.commands.cli import run_command

main = functools.partial(run_command, "audit")

if __name__ == "__main__":
    sys.exit(main())
