"""One run of a sweep as a process, without Hydra: `python -m golf.jobs.launch.job <run folder> [descriptors]`.

It ends with the sweep that started it. The locks are held for as long as their descriptors are open in one process,
so the run stays locked until this one has ended, even if the sweep was killed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from golf.jobs.launch.process import die_with_parent


def main() -> int:
    """Status 0 if there is a result, whatever its state."""
    die_with_parent()
    for descriptor in map(int, sys.argv[2:]):
        os.set_inheritable(descriptor, False)  # the ranks and compilers it starts must not keep them
    from golf.jobs.launch.launcher import run_ranks
    from golf.run.folder import RunFolder

    run_ranks(RunFolder(Path(sys.argv[1])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
