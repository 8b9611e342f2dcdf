"""Cost of a mirror to the training beside it: `python scripts/bench_tracking.py [overrides]`, such as `scale=laptop`.

Steps with `track=wandb` offline at work and steps with its processes stopped take turns, so that a machine whose speed
drifts slows them alike. Every step writes a line to metrics.jsonl, far more than a run does. Also prints the processor
time that the mirror takes: to start, which is before the clock, and per second of training.
"""

import argparse
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

from golf.lab.track.companion import descendants, end, start
from golf.lab.track.mirror_record import MirrorRecord
from golf.run.console import Display
from golf.run.folder import RunFolder, create_run_folder
from golf.run.runlog import RunLog
from golf.settings.composition import compose
from golf.settings.config import Config, grad_accum_steps
from golf.settings.jobs_config import TrackConfig
from golf.system import tune_allocator
from golf.training.loop.steps import TrainStep
from golf.training.loop.warmup import synthetic_batch
from golf.training.model.build import build_model, compile_for_training
from golf.training.optim.groups import build_optimizer
from golf.training.ranks import Ranks

TICKS = os.sysconf("SC_CLK_TCK")


class Trainer:
    """A loop that takes steps as a run does, each of them logged."""

    def __init__(self, cfg: Config, folder: RunFolder):
        model = build_model(cfg).to(cfg.launch.device)
        compile_for_training(model, cfg.launch)
        self.step = TrainStep(cfg, model, build_optimizer(cfg, model), Ranks(device=torch.device(cfg.launch.device)))
        self.batches = [synthetic_batch(cfg) for _ in range(grad_accum_steps(cfg))]
        self.log, self.steps, self.start = RunLog(folder, cfg, is_first=True), 0, time.perf_counter()
        self.log.display = Display()

    def __call__(self) -> float:
        """Take a step and return its seconds."""
        before = time.perf_counter()
        loss = self.step(iter(self.batches).__next__, 1.0, 0.95).item()
        self.steps += 1
        self.log.train_step(self.steps, time.perf_counter() - self.start, loss, 1.0)
        return time.perf_counter() - before


def processor_seconds(processes: list[int]) -> float:
    """Return the user and system time that `processes` have taken so far, in seconds."""
    fields = [Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split() for pid in processes]
    return sum(int(f[11]) + int(f[12]) for f in fields) / TICKS


def signal_all(processes: list[int], number: int) -> None:
    """Send signal `number` to every process."""
    for pid in processes:
        os.kill(pid, number)


def measure(trainer: Trainer, mirror: list[int], rounds: int) -> list[tuple[float, float]]:
    """Return the seconds of a step beside the mirror and of one without it, pair by pair in random order."""
    pairs = []
    for _ in range(rounds):
        seconds = {}
        for number in random.sample([signal.SIGCONT, signal.SIGSTOP], 2):
            signal_all(mirror, number)
            seconds[number] = trainer()
        pairs.append((seconds[signal.SIGCONT], seconds[signal.SIGSTOP]))
    signal_all(mirror, signal.SIGCONT)
    return pairs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", help="as for golf/train.py")
    parser.add_argument("--rounds", type=int, default=100)
    a = parser.parse_args()
    tune_allocator()
    cfg = compose([*a.overrides, "track=wandb", "track.mode=offline"])
    with tempfile.TemporaryDirectory() as root:
        os.environ["GOLF_RUNS"] = root
        folder = create_run_folder(cfg, sys.argv)
        trainer = Trainer(cfg, folder)
        # Two steps that are not counted, in which the step compiles.
        trainer(), trainer()
        began = time.perf_counter()
        process = start(folder, TrackConfig(backend="wandb", mode="offline"))
        while not ((found := MirrorRecord.read(folder.path)) and found.files):
            time.sleep(0.05)
        time.sleep(3.0)  # the mirror sends its first rows
        mirror = [process.pid, *descendants(process.pid)]
        started = processor_seconds(mirror)
        print(f"start of the mirror: {time.perf_counter() - began - 3.0:.1f} s, {started:.2f} s of processor time")
        pairs = measure(trainer, mirror, a.rounds)
        before, since = processor_seconds(mirror), time.perf_counter()
        # The pairs stop the mirror half of the time, so its processor time is taken over steps beside it.
        alone = [trainer() for _ in range(a.rounds)]
        share = (processor_seconds(mirror) - before) / (time.perf_counter() - since)
        end(process, folder, 60.0)
    ratio = statistics.median(w / wo for w, wo in pairs)
    mean = sum(w for w, _ in pairs) / sum(wo for _, wo in pairs)
    step_ms = 1000 * statistics.median(alone)
    print(f"{cfg.name}, {torch.get_num_threads()} threads, {len(pairs)} pairs, {step_ms:.1f} ms a step")
    print(f"step beside the mirror / step without: median {ratio:.4f}, of the sums {mean:.4f}")
    print(f"processor time of the mirror per second of training: {1000 * share:.2f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
