"""Training steps of several configurations in turns: `python -m bench.study_steps OVERRIDES… --base OVERRIDES`.

Each argument is one configuration, its overrides separated by blanks. The table has the seconds of a step in
parts of those of the base, the median over rounds in which every configuration takes one step. Late switches are on.
"""

import argparse
import contextlib
import shlex
import statistics

import torch

from bench.rounds import alternate, paired_ratio
from bench.step import stepping
from golf.settings.composition import compose
from golf.system import tune_allocator
from golf.training.loop.switches import switch_names


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configurations", nargs="+", help="overrides of one configuration, separated by blanks")
    parser.add_argument("--base", default="", help="overrides that all have, and the first of the table has alone")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    tune_allocator()
    torch.set_num_threads(arguments.threads)
    base, device = shlex.split(arguments.base), torch.device("cpu")
    with contextlib.ExitStack() as stack:
        configs = {name: compose([*base, *shlex.split(name)]) for name in ("", *arguments.configurations)}
        ways = {
            name: stack.enter_context(stepping(cfg, device, active=tuple(switch_names(cfg))))
            for name, cfg in configs.items()
        }
        seconds = alternate(ways, arguments.rounds, device)
    print("| configuration | ms a step | in parts of the base's |\n|---|---|---|")
    for name, own in seconds.items():
        print(f"| {name or 'base'} | {1000 * statistics.median(own):,.0f} | {paired_ratio(own, seconds['']):.2f} |")


if __name__ == "__main__":
    main()
