"""Translate a public command line: `python scripts/from_env.py "MATRIX_LR=0.06 torchrun … train_gpt.py"`.

Prints the overrides for golf/train.py that are the same experiment. Variables that this configuration does not know
are named on standard error, and the exit status is then 1: without them it would be another experiment.
"""

import shlex
import sys

from golf.errors import GolfError
from golf.settings.composition import compose
from golf.settings.env_vars import translate


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 0 if len(sys.argv) == 2 else 2
    try:
        translation = translate(sys.argv[1])
        compose(translation.overrides)
    except GolfError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(shlex.join(translation.overrides))
    if translation.machine:
        print(f"settings of the machine, not of the experiment: {' '.join(translation.machine)}", file=sys.stderr)
    if translation.unknown:
        print(f"not known here, so not in the list: {' '.join(translation.unknown)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
