"""Two ranks that sum tensors on their devices, as `golf gpu-check` starts them: NCCL on GPUs, gloo on a CPU."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time

import torch

from golf.paths import ROOT
from golf.training.ranks import Ranks, end_rank, join_ranks, leave_ranks

RANKS = 2
NUMBERS = 17_000_000  # about the gradients of nine layers of width 512
UNTIMED_SUMS, TIMED_SUMS = 2, 10
TIMEOUT_SECONDS = 120
LIBRARIES = {"cuda": "NCCL", "cpu": "gloo"}


def check_two_ranks(device: torch.device) -> tuple[bool, str]:
    """Sum tensors over two ranks in processes of their own; return whether they agree, and how long it took."""
    gpus = torch.cuda.device_count()
    if device.type == "cuda" and gpus < RANKS:
        return True, f"not tried: it needs two GPUs, and there is {gpus}"
    agent = [sys.executable, "-m", "golf.launch.agent", "--standalone", "--nproc-per-node", str(RANKS)]
    command = [*agent, "-m", "golf.commands.gpu_ranks", device.type]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        return False, f"no answer within {TIMEOUT_SECONDS} s; try NCCL_DEBUG=INFO"
    if done.returncode != 0:
        return False, (done.stderr.strip().splitlines() or ["they said nothing"])[-1]
    found = json.loads(done.stdout.splitlines()[-1])
    megabytes = 4e-6 * NUMBERS
    return found["alike"], f"{megabytes:.0f} MB in {found['milliseconds']:.1f} ms"


def sums(ranks: Ranks) -> dict[str, bool | float]:
    """Return whether the ranks' tensors and numbers sum to what they should, and the median time of a tensor's sum."""
    tensor = torch.full((NUMBERS,), float(ranks.rank + 1), device=ranks.device)
    ranks.sum_tensors([tensor])
    expected = ranks.world_size * (ranks.world_size + 1) / 2
    here = bool((tensor == expected).all())
    # Numbers travel between CPUs also where tensors travel between GPUs.
    alike = ranks.sum(float(here)) == [float(ranks.world_size)]
    milliseconds = []
    for _ in range(UNTIMED_SUMS + TIMED_SUMS):
        start = time.perf_counter()
        ranks.sum_tensors([tensor])
        if ranks.device.type == "cuda":
            torch.cuda.synchronize(ranks.device)
        milliseconds.append(1000 * (time.perf_counter() - start))
    return {"alike": alike, "milliseconds": statistics.median(milliseconds[UNTIMED_SUMS:])}


def main() -> None:
    """Join the other rank and print what was found, as JSON."""
    ranks = join_ranks(sys.argv[1], RANKS)
    found = sums(ranks)
    if ranks.is_first:
        print(json.dumps(found))
    leave_ranks()
    end_rank(0)


if __name__ == "__main__":
    main()
