"""Entry of a rank under torchrun: `python -m golf.jobs.launch.worker <run folder>`. Knows no Hydra."""

import sys
from pathlib import Path

from golf.jobs.launch.process import die_with_parent
from golf.jobs.launch.rank import run_in_process
from golf.run.folder import RunFolder
from golf.run.result import CRASHED, INTERRUPTED


def main() -> int:
    """Status 1 tells torchrun to stop the other ranks."""
    die_with_parent()
    result = run_in_process(RunFolder(Path(sys.argv[1])))
    return 1 if result.state in (CRASHED, INTERRUPTED) else 0


if __name__ == "__main__":
    sys.exit(main())
