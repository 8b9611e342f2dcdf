"""Which settings do two runs differ in? `python scripts/why.py A B`, each a run folder, a variant or "overrides"."""

import sys

from golf.report.why import why

if __name__ == "__main__":
    sys.exit(why(sys.argv[1:]))
