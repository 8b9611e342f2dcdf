"""Start-up of a run, timed: `python -m bench.startup_phases OVERRIDES` prints the seconds of each phase.

It does what a run does up to its second step. The last line is JSON with the phases of `bench.start.PHASES`.
"""

import itertools
import json
import sys
import time


def main() -> None:
    # Imports are timed too, so they stand between the marks and not at the top of the file.
    marks = [time.perf_counter()]
    import torch

    from bench.step import prepared_step
    from bench.tokens import random_dataset
    from golf.settings.composition import compose
    from golf.system import tune_allocator
    from golf.training.data.batches import open_loader
    from golf.training.data.dataset import open_dataset
    from golf.training.ranks import Ranks

    marks.append(time.perf_counter())
    cfg = compose(sys.argv[1:])
    tune_allocator()
    device = torch.device(cfg.launch.device)
    torch.set_num_threads(cfg.launch.threads or torch.get_num_threads())
    marks.append(time.perf_counter())
    open_dataset(cfg)
    marks.append(time.perf_counter())
    step = prepared_step(cfg, device)
    marks.append(time.perf_counter())
    with open_loader(cfg, random_dataset(cfg), Ranks(device=device)) as loader:
        for _ in range(2):
            step(loader.next_batch, 1.0, 0.95).item()
            marks.append(time.perf_counter())
    from bench.start import PHASES

    seconds = [after - before for before, after in itertools.pairwise(marks)]
    print(json.dumps(dict(zip(PHASES, seconds, strict=True))))


if __name__ == "__main__":
    main()
