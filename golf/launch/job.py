"""One run of a sweep as a process, without Hydra: `python -m golf.launch.job <run folder> [descriptors]`.

The process ends with the sweep that started it. The descriptors are those of the run's locks. A lock holds until every
process that has its descriptor open has ended, so the run stays locked until this process ends, even if the sweep was
killed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from golf.system import die_with_parent


def main() -> int:
    """Run the folder's ranks. Return 0 if there is a result, whatever its state."""
    die_with_parent()
    # A compiler worker or a rank that outlives this process must not keep the run locked.
    for descriptor in map(int, sys.argv[2:]):
        os.set_inheritable(descriptor, False)
    from golf.launch.launcher import run_ranks
    from golf.run.folder import RunFolder

    run_ranks(RunFolder(Path(sys.argv[1])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
