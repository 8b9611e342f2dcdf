"""`python -m golf` is the command `golf`."""

import sys

from golf.cli import main

sys.exit(main())
