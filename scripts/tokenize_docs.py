"""`golf data tokenize` without the installed command: `python scripts/tokenize_docs.py`."""

import functools
import sys

from golf.commands.cli import run_command

main = functools.partial(run_command, "data tokenize")

if __name__ == "__main__":
    sys.exit(main())
