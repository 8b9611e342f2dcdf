"""The command `golf`, as `python -m golf`."""

import sys

from golf.commands.cli import main

sys.exit(main())
